//! GitHub's REST API behind the port: what is asked keeps to GitHub's description, pace and trouble are dealt
//! with, and no error holds the token.

use std::time::Duration;

use countersign_doubles::github::faults::Fault;
use countersign_doubles::github::{GitHub as Double, LOGIN, TOKEN};
use countersign_gateway::clock::Clock;
use countersign_gateway::github::{GitHub as _, IssueRef, Repository, Trouble};
use countersign_integrations::github::{Access, RestGitHub};

const SHOP: &str = "octo/shop";

fn adapter(double: &Double) -> RestGitHub {
    let access = Access::new(Some(&double.url()), TOKEN.to_owned()).unwrap();
    RestGitHub::new(access, Clock::system())
}

fn issue(number: u64) -> IssueRef {
    IssueRef {
        repository: Repository::parse(SHOP).unwrap(),
        number,
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[tokio::test]
async fn labels_comments_and_accounts_are_what_github_says() {
    let double = Double::start();
    double.issue(SHOP, 7, &["bug"]);
    double.pull_request(SHOP, 8, "Closes #7", &[]);
    let github = adapter(&double);
    assert_eq!(github.login().await.unwrap().as_deref(), Some(LOGIN));
    assert_eq!(github.labels(&issue(7)).await.unwrap(), ["bug"]);
    let pull = github.issue(&issue(8)).await.unwrap();
    assert_eq!((pull.body.as_str(), pull.is_pull_request), ("Closes #7", true));
    github.add_labels(&issue(7), words(&["a"])).await.unwrap();
    github.replace_labels(&issue(7), words(&["b", "c"])).await.unwrap();
    assert_eq!(double.labels(SHOP, 7), ["b", "c"]);
    let events = github.label_events(&issue(7)).await.unwrap();
    assert!(
        events.iter().any(|event| event.label == "bug" && !event.added),
        "{events:?}"
    );
    github.replace_labels(&issue(7), Vec::new()).await.unwrap();
    assert_eq!(double.labels(SHOP, 7), [""; 0]);
    let id = github
        .create_comment(&issue(7), "<!-- mark -->\nhello".to_owned())
        .await
        .unwrap();
    assert_eq!(github.find_comment(&issue(7), "<!-- mark -->").await.unwrap(), Some(id));
    assert_eq!(github.find_comment(&issue(7), "<!-- other -->").await.unwrap(), None);
    github
        .update_comment(&issue(7).repository, id, "new".to_owned())
        .await
        .unwrap();
    assert_eq!(double.comments(SHOP, 7)[0].body, "new");
    // Whose account it is was asked once.
    assert_eq!(double.count("GET", "/user"), 1);
}

#[tokio::test]
async fn long_lists_are_read_to_their_end() {
    let double = Double::start();
    let many: Vec<String> = (0..250).map(|number| format!("label-{number:03}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    double.issue(SHOP, 7, &[]);
    double.label_by("ana", SHOP, 7, &many, &[]);
    let github = adapter(&double);
    assert_eq!(github.labels(&issue(7)).await.unwrap().len(), 250);
    let events = github.label_events(&issue(7)).await.unwrap();
    assert_eq!(events.last().unwrap().label, "label-249");
}

#[tokio::test]
async fn passing_trouble_passes_unnoticed() {
    let double = Double::start();
    double.issue(SHOP, 7, &["bug"]);
    let github = adapter(&double);
    double.next("GET", "/labels", Fault::Cut);
    double.next("GET", "/labels", Fault::status(502, "Bad Gateway"));
    assert_eq!(github.labels(&issue(7)).await.unwrap(), ["bug"]);
    assert_eq!(double.count("GET", "/labels"), 3);
    double.next("GET", "/labels", Fault::secondary_limit(1));
    assert_eq!(github.labels(&issue(7)).await.unwrap(), ["bug"]);
}

#[tokio::test]
async fn a_comment_whose_answer_was_lost_is_not_written_twice() {
    let double = Double::start();
    double.issue(SHOP, 7, &[]);
    let github = adapter(&double);
    double.next("POST", "/comments", Fault::CutBehind);
    let lost = github.create_comment(&issue(7), "hello".to_owned()).await.unwrap_err();
    assert_eq!(lost.kind, Trouble::Unavailable);
    assert_eq!(double.comments(SHOP, 7).len(), 1);
    assert_eq!(double.count("POST", "/comments"), 1);
}

#[tokio::test]
async fn a_limit_that_lasts_is_told_and_github_is_left_alone_until_it_is_over() {
    let double = Double::start();
    double.issue(SHOP, 7, &[]);
    let github = adapter(&double);
    let now = u64::try_from(Clock::system().now().as_millis() / 1_000).unwrap();
    double.next("GET", "/labels", Fault::primary_limit(now + 3_600));
    for _ in 0..3 {
        let error = github.labels(&issue(7)).await.unwrap_err();
        assert_eq!(error.kind, Trouble::Limited, "{error}");
        assert!(error.message.contains("try again then"), "{error}");
    }
    assert_eq!(double.count("GET", "/labels"), 1);
}

#[tokio::test]
async fn a_limit_is_believed_for_an_hour_and_one_that_is_over_is_not_tried_without_end() {
    let double = Double::start();
    double.issue(SHOP, 7, &[]);
    let now = u64::try_from(Clock::system().now().as_millis() / 1_000).unwrap();
    double.next("GET", "/labels", Fault::primary_limit(u64::MAX));
    let error = adapter(&double).labels(&issue(7)).await.unwrap_err();
    assert!(error.message.contains("for 360"), "{error}");
    // By a clock that goes before GitHub's, it is over as soon as it is told.
    for _ in 0..20 {
        double.next("GET", "/labels", Fault::primary_limit(now - 5));
    }
    let before = double.count("GET", "/labels");
    let error = adapter(&double).labels(&issue(7)).await.unwrap_err();
    assert_eq!(error.kind, Trouble::Limited, "{error}");
    assert_eq!(double.count("GET", "/labels") - before, 4);
}

#[tokio::test]
async fn refusals_say_what_to_do_and_never_hold_the_token() {
    let double = Double::start();
    double.issue(SHOP, 7, &[]);
    let github = adapter(&double);
    let missing = github.labels(&issue(9)).await.unwrap_err();
    assert_eq!(missing.kind, Trouble::NotFound);
    double.next("PUT", "/labels", Fault::status(403, "Resource not accessible"));
    let refused = github.replace_labels(&issue(7), words(&["x"])).await.unwrap_err();
    assert_eq!(refused.kind, Trouble::Refused);
    double.next("PUT", "/labels", Fault::status(422, &format!("{TOKEN} is wrong")));
    let invalid = github.replace_labels(&issue(7), words(&["x"])).await.unwrap_err();
    assert_eq!(invalid.kind, Trouble::Invalid);
    // A text that is cut in the middle of it.
    double.next(
        "PUT",
        "/labels",
        Fault::status(422, &format!("{} {TOKEN}", "x".repeat(194))),
    );
    let long = github.replace_labels(&issue(7), words(&["x"])).await.unwrap_err();
    assert!(!long.message.contains(&TOKEN[..4]), "{long}");
    let access = Access::new(Some(&double.url()), "another-token".to_owned()).unwrap();
    assert!(!format!("{access:?}").contains("another-token"));
    let stranger = RestGitHub::new(access, Clock::system())
        .labels(&issue(7))
        .await
        .unwrap_err();
    assert!(stranger.message.contains("`github.token`"), "{stranger}");
    let nobody = Access::new(Some("http://127.0.0.1:1"), TOKEN.to_owned()).unwrap();
    let nobody = RestGitHub::new(nobody, Clock::system());
    let unreachable = tokio::time::timeout(Duration::from_secs(20), nobody.labels(&issue(7))).await;
    let unreachable = unreachable.unwrap().unwrap_err();
    assert_eq!(unreachable.kind, Trouble::Unavailable);
    for error in [missing, refused, invalid, stranger, unreachable] {
        assert!(
            !error.message.contains(TOKEN) && !error.message.contains("another-token"),
            "{error}"
        );
    }
    assert!(Access::new(None, "a\nb".to_owned()).is_err());
    assert!(Access::new(Some("ftp://x"), "t".to_owned()).is_err());
}
