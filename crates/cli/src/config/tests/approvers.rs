//! Approvers and callbacks: what is understood, what is refused, and whose word it is.

use super::*;
use crate::config::secret::Secret;

#[test]
fn approvers_are_read_with_their_secrets_named_not_held() {
    let text = "\
approvers:
  - name: duty
    type: http
    url: https://approvals.example.org/ask
    timeout_ms: 2000
    headers: {Authorization_env: DUTY_AUTH, X-Key_file: keys/duty, X-Team: core}
  - {name: later, type: http, url: 'http://127.0.0.1:8080/ask', async: true}
  - {name: me, type: client}
callbacks: {token: t, url: 'https://countersign.example.org'}
";
    let world = World::new().operator(text);
    let settings = world.settings();
    let [duty, later] = &settings.http_approvers[..] else {
        panic!("{:?}", settings.http_approvers)
    };
    assert_eq!(
        (
            duty.name.as_str(),
            duty.timeout.map(|it| it.as_millis()),
            duty.answers_later
        ),
        ("duty", Some(2_000), false)
    );
    let file = world.path("home/.config/countersign/keys/duty");
    assert_eq!(
        duty.headers,
        [
            ("Authorization".to_owned(), Secret::Variable("DUTY_AUTH".to_owned())),
            ("X-Key".to_owned(), Secret::File(file)),
            ("X-Team".to_owned(), Secret::Value("core".to_owned())),
        ]
    );
    assert!(later.answers_later && later.headers.is_empty());
    assert_eq!(
        settings.callback_url.as_deref(),
        Some("https://countersign.example.org")
    );
    assert_eq!(settings.warnings, []);
}

#[test]
fn files_that_hold_our_secrets_are_hidden_from_commands() {
    let text = "\
approvers: [{name: a, type: http, url: 'https://h/', headers: {A_file: /srv/a}}]
callbacks: {token_file: /srv/token}
github: {token_file: /srv/github}
tls: {cert: /srv/cert.pem, key: /srv/key.pem}
";
    let hidden = World::new().operator(text).settings().places.hidden;
    for file in ["/srv/a", "/srv/token", "/srv/github", "/srv/key.pem"] {
        assert!(hidden.iter().any(|it| it == Path::new(file)), "{file}: {hidden:?}");
    }
}

#[test]
fn what_is_wrong_with_an_approver_is_told_with_its_place() {
    let one = |fields: &str| format!("approvers:\n  - {{name: a, type: http, {fields}}}\n");
    for (text, said) in [
        (
            one("url: 'ftp://x/'"),
            "line 2, column 32: `approvers.url` must be an http or https address",
        ),
        (
            one("url: 'http://'"),
            "`approvers.url` must be an http or https address",
        ),
        (
            one("url: 'http://h:/'"),
            "`approvers.url` must be an http or https address",
        ),
        (one("url: 'https://u:p@h/'"), "must not hold a user or a password"),
        (one("async: true"), "an approver of type `http` needs `url`"),
        (
            one("url: 'https://h/', headers: {Host: x}"),
            "`Host` is a header that we set ourselves",
        ),
        (
            one("url: 'https://h/', headers: {'a b': x}"),
            "`a b` is no name of a header",
        ),
        (
            one("url: 'https://h/', headers: {A: x, A_env: B}"),
            "`approvers.headers.A` is given twice",
        ),
        (one("url: 'https://h/', headers: {A: x, a: y}"), "`a` is given twice"),
        (
            one("url: 'https://h/', headers: {A: ''}"),
            "`approvers.headers.A` must not be empty",
        ),
        (
            one("url: 'https://h/', headers: {A_env: 'x y'}"),
            "must name environment variables",
        ),
        (one("url: 'https://h/', async: true"), "needs `callbacks: {token: …}`"),
        (
            "approvers: [{name: me, type: client, url: 'http://h/'}]\n".to_owned(),
            "`approvers.url` is for an approver of type `http`",
        ),
        (
            one("url: 'https://h/', async: true") + "callbacks: {token: t}\nlisten: 0.0.0.0:7420\n",
            "say where it reaches this server",
        ),
    ] {
        let problems = World::new().operator(&text).problems();
        assert!(problems.iter().any(|it| it.contains(said)), "{text}{problems:?}");
        assert!(problems[0].contains("config.yaml: line "), "{problems:?}");
    }
}

#[test]
fn questions_that_travel_in_the_open_are_warned_about() {
    let check = |url: &str| {
        let text = format!("approvers: [{{name: duty, type: http, url: '{url}'}}]\n");
        World::new().operator(&text).settings().warnings.len()
    };
    assert_eq!(check("http://approvals.example.org/"), 1);
    assert_eq!(
        (check("http://127.0.0.1/"), check("https://approvals.example.org/")),
        (0, 0)
    );
}

#[test]
fn a_project_neither_adds_approvers_nor_sets_what_callbacks_come_with() {
    for (key, text) in [
        (
            "approvers",
            "approvers: [{name: x, type: http, url: 'http://127.0.0.1/'}]\n",
        ),
        ("approvers", "approvers: [{name: x, type: client}]\n"),
        ("callbacks.token", "callbacks: {token: known-to-the-agent}\n"),
        ("callbacks.token", "callbacks: {token_env: PATH}\n"),
        ("callbacks.url", "callbacks: {url: 'http://127.0.0.1:1'}\n"),
    ] {
        for world in [World::new(), World::new().operator("quorum: 1\n")] {
            let settings = world.project(text).settings();
            assert!(
                settings.http_approvers.is_empty() && settings.callback_token.is_none(),
                "{text}"
            );
            assert!(settings.callback_url.is_none(), "{text}");
            let warned: Vec<_> = settings.warnings.iter().map(|it| it.key.as_str()).collect();
            assert_eq!(warned, [key], "{text}");
        }
    }
}
