//! `tokens` and `sessions` as a person types them.

use serde_json::json;

use crate::stage::Stage;

#[test]
fn a_token_is_shown_once_and_never_again() {
    let stage = Stage::new();
    let made = stage.json(&["tokens", "create", "--role", "agent", "--name", "laptop", "--json"]);
    let token = made["token"].as_str().unwrap();
    assert!(token.starts_with("cs_agent_") && token.len() == 73, "{made}");
    let fields: Vec<_> = made.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["id", "role", "name", "token"]);
    let listed = stage.json(&["tokens", "list", "--json"]);
    assert_eq!(
        listed,
        json!([{"id": made["id"], "role": "agent", "name": "laptop", "createdAt": listed[0]["createdAt"],
                "revokedAt": null, "expiresAt": null, "run": null}])
    );
    let everything = [
        stage.run(&["tokens", "list"]).stdout,
        stage.run(&["audit", "query", "--kind", "event", "--json"]).stdout,
        stage.run(&["audit", "export"]).stdout,
    ];
    assert!(!everything.concat().contains(token));
    assert!(everything[1].contains("token.created") && everything[1].contains("\"actor_id\":\"ada\""));
}

#[test]
fn a_person_sees_the_token_alone_on_standard_output() {
    let stage = Stage::new();
    let ran = stage.run(&["tokens", "create", "--role", "operator", "--name", "ada"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.starts_with("cs_operator_") && ran.stdout.lines().count() == 1,
        "{ran:?}"
    );
    assert_eq!(
        ran.stderr,
        "token `ada` of role operator made; it is shown this once, only a digest of it is kept\n"
    );
}

#[test]
fn a_name_in_force_is_refused_until_it_is_revoked() {
    let stage = Stage::new();
    let create = ["tokens", "create", "--role", "viewer", "--name", "wall", "--json"];
    let first = stage.json(&create);
    stage.run(&create).failed(
        1,
        "countersign: a token named `wall` is in force already; revoke it first or choose another name\n",
    );
    let id = first["id"].as_str().unwrap();
    assert_eq!(
        stage.run(&["tokens", "revoke", "wall"]).stdout,
        format!("token `wall` ({id}) is revoked; running servers know within a second\n")
    );
    let again = stage.run(&["tokens", "revoke", id]);
    assert!(
        again.code == 0 && again.stdout.contains("was revoked before, at 20"),
        "{again:?}"
    );
    stage.json(&create);
    let listed = stage.json(&["tokens", "list", "--json"]);
    let revoked: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["revokedAt"].is_string())
        .collect();
    assert_eq!(revoked, [true, false]);
    let shown = stage.run(&["tokens", "list"]).stdout;
    assert!(shown.contains("in force") && shown.contains("revoked 20"), "{shown}");
}

#[test]
fn what_names_no_token_is_said_so() {
    let stage = Stage::new();
    stage.run(&["tokens", "create", "--role", "agent", "--name", "a b"]).failed(
        2,
        "countersign: `--name`: a token's name has 1 to 64 letters, digits, or any of `. _ - @`, and does not begin with `tok_` or `job-`\n",
    );
    let ran = stage.run(&["tokens", "create", "--role", "king", "--name", "a"]);
    assert!(
        ran.code == 2
            && ran
                .stderr
                .contains("[possible values: agent, operator, approver, viewer]"),
        "{ran:?}"
    );
    stage.run(&["tokens", "create", "--role", "agent", "--name", "a"]);
    stage.run(&["tokens", "revoke", "nobody"]).failed(
        1,
        "countersign: there is no token `nobody`; `tokens list` shows what there is\n",
    );
}

#[test]
fn without_sessions_the_list_is_empty() {
    let stage = Stage::with_record();
    assert_eq!(stage.json(&["sessions", "list", "--json"]), json!([]));
    assert_eq!(stage.run(&["sessions", "list"]).stdout, "");
    let ran = stage.run(&["sessions", "list", "--state", "lost"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("created, initialized, closed, expired"),
        "{ran:?}"
    );
}
