//! The cluster of tests applies as Kubernetes does, and answers what Kubernetes describes.

use countersign_doubles::http;
use countersign_doubles::kubernetes::{Kubernetes, TOKEN};
use serde_json::{Value, json};

const PLACE: &str = "/api/v1/namespaces/shop/secrets/database";

fn cluster() -> Kubernetes {
    let cluster = Kubernetes::start();
    cluster.namespace("shop");
    cluster
}

fn ask(cluster: &Kubernetes, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [
        ("Authorization", authorization.as_str()),
        ("Content-Type", "application/apply-patch+yaml"),
    ];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let (status, said) = http::send(cluster.address(), method, path, &headers, body.as_bytes());
    (status, serde_json::from_str(&said).unwrap_or(Value::Null))
}

/// Applies more of a Secret as somebody.
fn apply(cluster: &Kubernetes, manager: &str, more: Value) -> (u16, Value) {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}});
    for (name, value) in more.as_object().unwrap() {
        secret[name] = value.clone();
    }
    ask(cluster, "PATCH", &format!("{PLACE}?fieldManager={manager}"), &secret)
}

fn data(answer: &(u16, Value)) -> &Value {
    &answer.1["data"]
}

/// What a manager keeps, by the answer.
fn kept<'a>(answer: &'a (u16, Value), manager: &str) -> &'a Value {
    let entries = answer.1["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|entry| entry["manager"] == manager);
    own.map_or(&Value::Null, |entry| &entry["fieldsV1"])
}

#[test]
fn each_manager_keeps_what_it_applied_and_loses_what_it_no_longer_names() {
    let cluster = cluster();
    let first = apply(&cluster, "helm", json!({"data": {"user": "YQ==", "host": "Yg=="}}));
    assert_eq!(first.0, 201);
    assert_eq!(*kept(&first, "helm"), json!({"f:data": {"f:user": {}, "f:host": {}}}));
    let second = apply(&cluster, "countersign", json!({"data": {"value": "Yw=="}}));
    assert_eq!(
        (second.0, data(&second)),
        (200, &json!({"user": "YQ==", "host": "Yg==", "value": "Yw=="}))
    );
    let third = apply(&cluster, "helm", json!({"data": {"user": "YQ=="}}));
    assert_eq!(*data(&third), json!({"user": "YQ==", "value": "Yw=="}));
    // Kept by two, it stays until both have let go.
    apply(
        &cluster,
        "countersign",
        json!({"data": {"value": "Yw==", "user": "YQ=="}}),
    );
    let shared = apply(&cluster, "helm", json!({"data": {}}));
    assert_eq!(*data(&shared), json!({"user": "YQ==", "value": "Yw=="}));
    let gone = apply(&cluster, "countersign", json!({"data": {"value": "Yw=="}}));
    assert_eq!(*data(&gone), json!({"value": "Yw=="}));
    assert_eq!(*kept(&gone, "helm"), Value::Null);
}

#[test]
fn what_another_keeps_is_a_conflict_and_force_takes_it() {
    let cluster = cluster();
    apply(&cluster, "helm", json!({"data": {"user": "YQ=="}}));
    let (status, refused) = apply(&cluster, "countersign", json!({"data": {"user": "Yg=="}}));
    assert_eq!((status, &refused["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"helm\": .data.user"
    );
    assert_eq!(refused["details"]["causes"][0]["field"], ".data.user");
    assert_eq!(cluster.secret("shop", "database", "user").unwrap(), b"a");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "data": {"user": "Yg=="},
    });
    let forced = ask(
        &cluster,
        "PATCH",
        &format!("{PLACE}?fieldManager=countersign&force=true"),
        &secret,
    );
    assert_eq!((forced.0, data(&forced)), (200, &json!({"user": "Yg=="})));
    assert_eq!(
        (kept(&forced, "helm"), kept(&forced, "countersign").is_object()),
        (&Value::Null, true)
    );
}

#[test]
fn a_version_is_good_until_something_changes_and_the_same_again_changes_nothing() {
    let cluster = cluster();
    let version = |answer: &(u16, Value)| answer.1["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let at = |version: &str| json!({"name": "database", "resourceVersion": version});
    let first = version(&apply(&cluster, "a", json!({"data": {"x": "YQ=="}})));
    let same = apply(&cluster, "a", json!({"data": {"x": "YQ=="}, "metadata": at(&first)}));
    assert_eq!((same.0, version(&same)), (200, first.clone()));
    let next = apply(&cluster, "a", json!({"data": {"x": "Yg=="}, "metadata": at(&first)}));
    assert_ne!(version(&next), first);
    let (status, refused) = apply(&cluster, "a", json!({"data": {"x": "Yw=="}, "metadata": at(&first)}));
    assert_eq!(status, 409);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("the object has been modified")
    );
    let dry = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "data": {"x": "ZA=="}});
    let dry = ask(&cluster, "PATCH", &format!("{PLACE}?fieldManager=a&dryRun=All"), &dry);
    assert_eq!((dry.0, data(&dry)), (200, &json!({"x": "ZA=="})));
    assert_eq!(cluster.secret("shop", "database", "x").unwrap(), b"b");
}

#[test]
fn plain_texts_become_data_and_what_is_no_data_is_refused() {
    let cluster = cluster();
    let texts = apply(
        &cluster,
        "a",
        json!({"stringData": {"x": "é"}, "data": {"x": "YQ==", "y": "Yg=="}}),
    );
    assert_eq!(*data(&texts), json!({"x": "w6k=", "y": "Yg=="}));
    assert!(texts.1["stringData"].is_null());
    let (status, refused) = apply(&cluster, "a", json!({"data": {"x": "not base64"}}));
    assert_eq!((status, refused["reason"].as_str()), (400, Some("BadRequest")));
    let (status, refused) = apply(&cluster, "a", json!({"data": {"a/b": "YQ=="}}));
    assert_eq!((status, refused["reason"].as_str()), (422, Some("Invalid")));
    let (status, _) = apply(&cluster, "", json!({"data": {}}));
    assert_eq!(status, 422, "somebody must apply it");
}

#[test]
fn an_immutable_secret_stays_as_it_is() {
    let cluster = cluster();
    apply(&cluster, "a", json!({"data": {"x": "YQ=="}, "immutable": true}));
    for more in [
        json!({"data": {"x": "Yg=="}, "immutable": true}),
        json!({"data": {"x": "YQ==", "y": "YQ=="}, "immutable": true}),
        json!({"data": {"x": "YQ=="}, "immutable": false}),
        json!({"data": {"x": "YQ=="}}),
    ] {
        let (status, refused) = apply(&cluster, "a", more.clone());
        assert_eq!((status, refused["reason"].as_str()), (422, Some("Invalid")), "{more}");
    }
    let labelled = json!({"name": "database", "labels": {"team": "shop"}});
    let labelled = apply(
        &cluster,
        "a",
        json!({"data": {"x": "YQ=="}, "immutable": true, "metadata": labelled}),
    );
    assert_eq!(
        (labelled.0, &labelled.1["metadata"]["labels"]),
        (200, &json!({"team": "shop"}))
    );
    let (status, _) = apply(&cluster, "b", json!({"type": "kubernetes.io/tls", "data": {}}));
    assert_eq!(status, 422, "the type stays too");
}

#[test]
fn every_answer_of_the_double_is_one_that_kubernetes_describes() {
    let cluster = cluster();
    apply(&cluster, "a", json!({"data": {"x": "YQ=="}}));
    for (method, path, status) in [
        ("GET", "/version", 200),
        ("GET", "/api", 200),
        ("GET", "/apis", 200),
        ("GET", "/api/v1", 200),
        ("GET", PLACE, 200),
        ("GET", "/api/v1/namespaces/shop/secrets/none", 404),
        ("PUT", PLACE, 405),
        ("DELETE", PLACE, 200),
        ("DELETE", PLACE, 404),
    ] {
        assert_eq!(ask(&cluster, method, path, &Value::Null).0, status, "{method} {path}");
    }
    let (status, _) = http::send(cluster.address(), "GET", PLACE, &[], b"");
    assert_eq!(status, 401);
}

#[test]
#[should_panic(expected = "contract was broken")]
fn a_request_that_kubernetes_does_not_describe_is_found_out() {
    let cluster = cluster();
    apply(&cluster, "a", json!({"data": {"x": "YQ=="}, "secretData": {}}));
}
