//! What keys do to what is on the screen.

use super::*;
use countersign_gateway::approval::request::ApprovalType;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, CredentialId};

fn asked(id: &str) -> ApprovalRequest {
    let mut approval = ApprovalRequest::new(
        ApprovalId::trusted(id),
        ApprovalType::ExecCommand,
        CorrelationId::trusted("c"),
        CredentialId::trusted("local"),
        Timestamp::from_millis(0),
    );
    approval.details.insert("command".to_owned(), "rm \u{1b}[2J x".into());
    approval
}

fn screen(ids: &[&str]) -> Screen {
    let mut screen = Screen::default();
    screen.take(ids.iter().map(|id| asked(id)).collect(), Instant::now());
    screen
}

/// A key of somebody who has looked.
fn press(screen: &mut Screen, key: Key) -> Wish {
    screen.press(key, Instant::now() + LOOK_FIRST)
}

fn allow(id: &str) -> Wish {
    let id = ApprovalId::trusted(id);
    Wish::Decide(id, Choice::Allow, "approved on the terminal".into())
}

#[test]
fn a_key_that_is_held_approves_no_second_question() {
    let mut screen = screen(&["one", "two", "three"]);
    assert_eq!(press(&mut screen, Key::Text('a')), allow("one"));
    let now = Instant::now();
    screen.decided = Some(ApprovalId::trusted("one"));
    screen.take(["two", "three"].map(asked).to_vec(), now);
    assert_eq!(screen.press(Key::Text('a'), now), Wish::Nothing);
    assert!(screen.said.contains("another question"), "{}", screen.said);
    assert_eq!(screen.press(Key::Text('a'), now + LOOK_FIRST), allow("two"));
    // Whoever chose one knows which it is.
    screen.press(Key::Down, now);
    assert_eq!(screen.press(Key::Text('a'), now), allow("three"));
}

#[test]
fn keys_choose_and_decide() {
    let mut screen = screen(&["one", "two"]);
    assert_eq!(press(&mut screen, Key::Text('a')), allow("one"));
    press(&mut screen, Key::Down);
    press(&mut screen, Key::Down);
    assert_eq!(press(&mut screen, Key::Text('a')), allow("two"));
    press(&mut screen, Key::Text('k'));
    assert_eq!(press(&mut screen, Key::Text('a')), allow("one"));
    assert_eq!(press(&mut screen, Key::Text('q')), Wish::Quit);
}

#[test]
fn a_question_is_answered_by_the_number_of_an_option() {
    let mut question = asked("one");
    question.kind = ApprovalType::Question;
    let offer = Offer::new("Which?", &["main".to_owned(), "next".to_owned()], false).unwrap();
    question.details = offer.details();
    let mut screen = Screen::default();
    screen.take(vec![question, asked("two")], Instant::now());
    let drawn = screen.drawn(80, 24).join("\n");
    assert!(
        drawn.contains("option 2") && drawn.ends_with("1-2 answer by that option   d deny   j/k choose   q quit"),
        "{drawn}"
    );
    for key in ['a', 'A', '3'] {
        assert_eq!(press(&mut screen, Key::Text(key)), Wish::Nothing, "{key} is no answer");
        assert_eq!(screen.said, "1-2 answer by that option");
    }
    assert_eq!(
        press(&mut screen, Key::Text('2')),
        Wish::Answer(ApprovalId::trusted("one"), "next".to_owned())
    );
    press(&mut screen, Key::Down);
    assert_eq!(
        press(&mut screen, Key::Text('2')),
        Wish::Nothing,
        "an act has no options"
    );
    assert_eq!(press(&mut screen, Key::Text('a')), allow("two"));
}

#[test]
fn denying_asks_for_a_reason_and_letters_are_then_letters() {
    let mut screen = screen(&["one"]);
    press(&mut screen, Key::Text('d'));
    assert_eq!(press(&mut screen, Key::Enter), Wish::Nothing, "no reason, no denial");
    for c in "aqx".chars() {
        assert_eq!(press(&mut screen, Key::Text(c)), Wish::Nothing);
    }
    press(&mut screen, Key::Erase);
    let denied = Wish::Decide(ApprovalId::trusted("one"), Choice::Deny, "aq".into());
    assert_eq!(press(&mut screen, Key::Enter), denied);
    press(&mut screen, Key::Text('d'));
    assert_eq!(press(&mut screen, Key::Escape), Wish::Nothing);
    assert_eq!(press(&mut screen, Key::Escape), Wish::Quit);
}

#[test]
fn allowing_from_now_on_shows_the_rule_and_takes_one_more_key() {
    let rule = ProposedRule {
        pattern: "^rm x$".into(),
        reason: "said so".into(),
        yaml: "approval_policy:\n  whitelist:\n    - pattern: \"^rm x$\"\n".into(),
        file: "/home/ada/config.yaml".into(),
    };
    let id = ApprovalId::trusted("one");
    let mut screen = screen(&["one"]);
    assert_eq!(press(&mut screen, Key::Text('A')), Wish::Propose(id.clone()));
    screen.proposed = Some((id.clone(), rule.clone()));
    let drawn = screen.drawn(80, 24).join("\n");
    assert!(
        drawn.contains("^rm x$") && drawn.contains("/home/ada/config.yaml"),
        "{drawn}"
    );
    assert_eq!(press(&mut screen, Key::Enter), Wish::Nothing, "only a yes is a yes");
    assert_eq!(
        press(&mut screen, Key::Text('y')),
        Wish::Nothing,
        "what was declined is gone"
    );
    screen.proposed = Some((id.clone(), rule.clone()));
    assert_eq!(
        press(&mut screen, Key::Text('y')),
        Wish::Always(id.clone(), rule.clone())
    );
    screen.proposed = Some((id, rule));
    screen.take(Vec::new(), Instant::now());
    assert_eq!(
        press(&mut screen, Key::Text('y')),
        Wish::Nothing,
        "somebody else decided it"
    );
}

#[test]
fn what_comes_and_goes_does_not_move_the_choice() {
    let mut screen = screen(&["one", "two", "three"]);
    press(&mut screen, Key::Down);
    screen.take(["zero", "one", "two"].map(asked).to_vec(), Instant::now());
    assert_eq!(screen.chosen, Some(ApprovalId::trusted("two")));
    press(&mut screen, Key::Text('d'));
    screen.take(["zero", "one"].map(asked).to_vec(), Instant::now());
    assert_eq!(
        (screen.chosen.clone(), screen.slipped.clone()),
        (Some(ApprovalId::trusted("one")), Some(ApprovalId::trusted("one")))
    );
    screen.take(Vec::new(), Instant::now());
    assert_eq!(press(&mut screen, Key::Text('a')), Wish::Nothing);
}

#[test]
fn a_reason_that_is_being_typed_decides_no_other_question() {
    let mut screen = screen(&["one", "two"]);
    press(&mut screen, Key::Text('d'));
    press(&mut screen, Key::Text('b'));
    // Whoever asked takes it back, and the choice comes to another.
    screen.take(["two"].map(asked).to_vec(), Instant::now());
    for c in "ad iaAea".chars() {
        assert_eq!(press(&mut screen, Key::Text(c)), Wish::Nothing, "letters stay letters");
    }
    assert!(screen.drawn(80, 24).join("\n").contains("enter or esc to go on"));
    assert_eq!(press(&mut screen, Key::Enter), Wish::Nothing);
    assert_eq!(
        press(&mut screen, Key::Text('a')),
        Wish::Nothing,
        "nobody chose the other one"
    );
}

#[test]
fn what_the_choice_slips_to_is_not_decided_before_somebody_chose_it() {
    let mut screen = screen(&["one", "two", "three"]);
    screen.take(["two", "three"].map(asked).to_vec(), Instant::now());
    for _ in 0..3 {
        assert_eq!(
            press(&mut screen, Key::Text('a')),
            Wish::Nothing,
            "it slipped under the key"
        );
    }
    assert_eq!(press(&mut screen, Key::Text('A')), Wish::Nothing);
    press(&mut screen, Key::Enter);
    assert_eq!(press(&mut screen, Key::Text('a')), allow("two"));
    // What was decided here goes away as expected.
    screen.decided = Some(ApprovalId::trusted("two"));
    screen.take(["three"].map(asked).to_vec(), Instant::now());
    assert_eq!(press(&mut screen, Key::Text('a')), allow("three"));
}

#[test]
fn a_long_command_is_shown_to_its_end_or_not_approved_at_the_first_key() {
    let long = |count: usize| {
        let mut question = asked("one");
        let line = format!("true {}; rm -rf ~", "x".repeat(count));
        question.details.insert("command".to_owned(), line.into());
        question
    };
    let mut screen = Screen::default();
    screen.take(vec![long(200)], Instant::now());
    let drawn = screen.drawn(80, 24).join("\n");
    assert!(drawn.contains("rm -rf ~"), "{drawn}");
    screen.take(vec![long(4_000)], Instant::now());
    let drawn = screen.drawn(80, 24).join("\n");
    assert!(!drawn.contains("rm -rf ~") && drawn.contains("more lines"), "{drawn}");
    assert_eq!(press(&mut screen, Key::Text('a')), Wish::Nothing);
    assert!(screen.drawn(200, 24).join("\n").contains("approvals show one"));
    assert!(matches!(press(&mut screen, Key::Text('a')), Wish::Decide(..)));
}

#[test]
fn the_screen_fits_and_nothing_steers_the_terminal() {
    let mut screen = screen(&["one", "two"]);
    for (columns, rows) in [(20, 6), (80, 24), (200, 50)] {
        let drawn = screen.drawn(columns, rows);
        assert!(
            drawn.len() <= rows && drawn.iter().all(|line| line.chars().count() <= columns),
            "{drawn:?}"
        );
        assert!(!drawn.iter().any(|line| line.contains('\u{1b}')), "{drawn:?}");
    }
}
