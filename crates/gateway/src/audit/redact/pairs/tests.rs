//! Values that stand beside their names, and others that do not.

use serde_json::json;

use crate::audit::redact::{Config, REPLACEMENT, Redactor};

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

/// Each holds `hunter2x` as a secret, and `ann` beside it.
#[test]
fn a_value_is_known_by_the_name_beside_it() {
    for text in [
        "define('DB_USER', 'ann'); define('DB_PASSWORD', 'hunter2x');",
        "define(\"DB_PASSWORD\",\"hunter2x\"); // ann",
        "os.environ.setdefault(\"API_TOKEN\", 'hunter2x') # ann",
        "props.setProperty(\"db.password\", \"a hunter2x\"); // ann",
        "<add key='Password' value='hunter2x'/><add key='User' value='ann'/>",
        "<add name=\"ApiToken\" value=\"a hunter2x\" /> ann",
        "<input name=\"csrf_token\" value=\"hunter2x\"> ann",
        "env:\n  - name: USER\n    value: ann\n  - name: DB_PASSWORD\n    value: hunter2x\n",
        "- name: \"DB_PASSWORD\"\n  value: 'a hunter2x'\n- name: USER\n  value: ann",
        "- name: 'DB_PASSWORD'\r\n  value: \"a hunter2x\"\r\n- ann",
        "- name: DB_PASSWORD\n  value: a b hunter2x\n- name: USER\n  value: ann",
        "- name: DB_PASSWORD\n  value: |\n    a b\n    hunter2x\n- name: USER\n  value: ann",
        "- value: hunter2x\n  name: DB_PASSWORD\n- ann",
        "{name: DB_PASSWORD, value: hunter2x} ann",
        r#"[{"name":"DB_PASSWORD","value":"hunter2x"},{"name":"USER","value":"ann"}]"#,
        "{\n  \"Key\": \"db_password\",\n  \"Value\": \"a \\\" hunter2x\"\n}, ann",
        r#"{"value":"hunter2x","name":"DB_PASSWORD"} ann"#,
        r#"{\"name\":\"DB_PASSWORD\",\"value\":\"hunter2x\"} ann"#,
        r#"{"ParameterKey": "DbPassword", "ParameterValue": "hunter2x"} ann"#,
        "Passwort: hunter2x\nann",
        "curl https://api.telegram.org/bot123456789:Aahunter2xAAAAAAAAAAAAAAAAAAAAAAAAA/getMe ann",
        "123456789:Aahunter2xAAAAAAAAAAAAAAAAAAAAAAAAA ann",
    ] {
        let shown = plain().redact_text(text);
        assert!(!shown.contains("2x") && shown.contains("ann"), "{text}\n{shown}");
    }
}

/// Each holds `hunter2x` as a secret.
#[test]
fn a_manifest_of_a_secret_keeps_its_values() {
    for text in [
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: shown\ndata:\n  foo: hunter2x==\n",
        "kind: Secret\nstringData:\n  foo: a hunter2x\n  bar: |\n    hunter2x\n    b: hunter2x\nname: shown",
        "apiVersion: v1\ndata:\n  foo: hunter2x\nkind: Secret\nmetadata:\n  name: shown\n",
        "kind: ConfigMap\ndata:\n  foo: shown\n---\nkind: \"Secret\"\ndata:\n  foo: hunter2x\n",
        "items:\n- apiVersion: v1\n  data:\n    foo: shown\n  kind: ConfigMap\n- apiVersion: v1\n  data:\n    foo: hunter2x\n  kind: Secret\n",
        "kind: Secret # shown\ndata: {foo: hunter2x}\n",
        r#"{"kind":"Secret","data":{"foo":"hunter2x"},"metadata":{"name":"shown"}}"#,
        r#"{"items":[{"data":{"a":"shown"},"kind":"ConfigMap"},{"data":{"a":"hunter2x"},"kind":"Secret"}]}"#,
        "{\n  \"data\": {\n    \"foo\": \"hunter2x\"\n  },\n  \"kind\": \"Secret\", \"name\": \"shown\"\n}",
    ] {
        let shown = plain().redact_text(text);
        assert!(!shown.contains("2x") && shown.contains("shown"), "{text}\n{shown}");
        let line = format!("kubectl apply -f - <<'E'\n{text}\nE");
        let shown = plain().redact_line(&line);
        assert!(!shown.contains("2x") && shown.contains("shown"), "{line}\n{shown}");
    }
}

#[test]
fn objects_are_read_like_texts() {
    let given = json!({"env": [{"name": "DB_PASSWORD", "value": "hunter2x"}, {"name": "USER", "value": "ann"}],
        "object": {"kind": "Secret", "data": {"foo": "hunter2x"}}, "other": {"kind": "ConfigMap", "data": {"a": "b"}}});
    let shown = json!({"env": [{"name": "DB_PASSWORD", "value": REPLACEMENT}, {"name": "USER", "value": "ann"}],
        "object": {"kind": "Secret", "data": {"foo": REPLACEMENT}}, "other": {"kind": "ConfigMap", "data": {"a": "b"}}});
    assert_eq!(plain().redact_json(&given), shown);
}

#[test]
fn what_stands_beside_other_names_is_shown() {
    for text in [
        "- name: LOG_LEVEL\n  value: debug",
        "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef: {name: db, key: password}",
        "<add key=\"Colour\" value=\"blue\"/>",
        "define('DB_PASSWORD_FILE', '/run/x')",
        "print('password', 'wrong')",
        "kind: Secret\nmetadata:\n  name: db\ntype: Opaque",
        "kind: ConfigMap\ndata:\n  foo: bar",
        "the kind: Secret and its data: below",
        "1700000000:da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "name: token",
        "the name: password and value",
    ] {
        assert_eq!(plain().redact_text(text), text);
    }
}

#[test]
fn long_texts_of_pairs_and_manifests_come_to_an_end() {
    for piece in [
        "kind: Secret\n",
        "kind: Secret\ndata:\n a: b\n",
        "- kind: Secret\n",
        "{\"data\":",
        "{\"data\":{\"a\":\"b\",\"kind\":\"Secret\"",
        "\"kind\":\"Secret\",",
        "name: token value: ",
        "name: token\nvalue: \"",
        "name:token,value:'",
        "value: \"x\"  ",
        "value: x name: ",
        "set('token', '",
        "set('token', \"",
        " ",
        "\\n",
        "token:\n  a\n",
        "token:\n- a\n",
        "token:\n",
        "token:[\"a\",",
        "token:{value:",
        "token:{a:b,",
        "\u{1b}[31mpass",
        "\u{1b}]",
        "token=\"\"\"",
        "ENV TOKEN ",
    ] {
        let text = format!("kind: Secret\nname: token{}", piece.repeat(512 * 1024 / piece.len()));
        let _ = plain().redact_text(&text);
    }
    let steps: String = (0..1_000)
        .map(|depth| format!("{}kind: Secret\n", " ".repeat(depth)))
        .collect();
    let _ = plain().redact_text(&steps);
}
