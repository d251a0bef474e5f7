//! The stand-in itself: it keeps to what GitHub has published, and behaves where that says nothing.
#![allow(clippy::unwrap_used, reason = "a test says what it found by failing")]

mod kubernetes;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_doubles::github::deliveries::signature;
use countersign_doubles::github::faults::Fault;
use countersign_doubles::github::{GitHub, TOKEN};
use countersign_doubles::http;
use crypto_box::PublicKey;
use crypto_box::aead::OsRng;
use serde_json::{Value, json};

const SHOP: &str = "octo/shop";

fn ask(github: &GitHub, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("Authorization", authorization.as_str()), ("User-Agent", "test")];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let address = github.url();
    let (status, said) = http::send(
        address.trim_start_matches("http://"),
        method,
        path,
        &headers,
        body.as_bytes(),
    );
    (status, serde_json::from_str(&said).unwrap_or(Value::Null))
}

#[test]
fn every_answer_of_the_double_is_one_that_github_describes() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["bug", "run:dev"]);
    github.pull_request(SHOP, 8, "Closes #7", &[]);
    github.environment(SHOP, "production");
    let issue = "/repos/octo/shop/issues/7";
    let null = Value::Null;
    for (method, path, body, status) in [
        ("GET", "/user".to_owned(), null.clone(), 200),
        ("GET", issue.to_owned(), null.clone(), 200),
        ("GET", "/repos/octo/shop/issues/8".to_owned(), null.clone(), 200),
        ("GET", "/repos/octo/shop/issues/9".to_owned(), null.clone(), 404),
        ("GET", format!("{issue}/labels?per_page=100"), null.clone(), 200),
        ("POST", format!("{issue}/labels"), json!({"labels": ["new"]}), 200),
        ("PUT", format!("{issue}/labels"), json!({"labels": ["only"]}), 200),
        ("GET", format!("{issue}/events?per_page=100&page=1"), null.clone(), 200),
        ("DELETE", format!("{issue}/labels"), null.clone(), 204),
        ("POST", format!("{issue}/comments"), json!({"body": "hello"}), 201),
        ("GET", format!("{issue}/comments"), null.clone(), 200),
        (
            "GET",
            "/repos/octo/shop/actions/secrets/public-key".to_owned(),
            null.clone(),
            200,
        ),
        (
            "GET",
            "/repos/octo/shop/environments/production".to_owned(),
            null.clone(),
            200,
        ),
        (
            "GET",
            "/repos/octo/shop/environments/production/secrets/public-key".to_owned(),
            null.clone(),
            200,
        ),
        (
            "GET",
            "/repos/octo/shop/environments/other/secrets/public-key".to_owned(),
            null,
            404,
        ),
    ] {
        assert_eq!(ask(&github, method, &path, &body).0, status, "{method} {path}");
    }
    let comment = github.comments(SHOP, 7)[0].id;
    let path = format!("/repos/octo/shop/issues/comments/{comment}");
    assert_eq!(ask(&github, "PATCH", &path, &json!({"body": "again"})).0, 200);
    assert_eq!(github.comments(SHOP, 7)[0].body, "again");
    assert_eq!(github.labels(SHOP, 7), [""; 0]);
}

#[test]
fn a_secret_is_taken_only_when_it_is_sealed_for_the_current_key() {
    let github = GitHub::start();
    github.environment(SHOP, "prod");
    let base = "/repos/octo/shop/environments/prod/secrets";
    let (_, key) = ask(&github, "GET", &format!("{base}/public-key"), &Value::Null);
    let bytes: [u8; 32] = STANDARD
        .decode(key["key"].as_str().unwrap())
        .unwrap()
        .try_into()
        .unwrap();
    let sealed = STANDARD.encode(PublicKey::from(bytes).seal(&mut OsRng, b"v4lue").unwrap());
    let path = format!("{base}/DB_PASSWORD");
    let given = json!({"encrypted_value": sealed, "key_id": key["key_id"]});
    assert_eq!(ask(&github, "PUT", &path, &given).0, 201);
    assert_eq!(ask(&github, "PUT", &path, &given).0, 204);
    assert_eq!(github.secret(SHOP, Some("prod"), "db_password").unwrap(), b"v4lue");
    assert_eq!(github.secret_writes(SHOP, Some("prod"), "DB_PASSWORD"), 2);
    assert_eq!(github.secret(SHOP, None, "DB_PASSWORD"), None);
    let other = json!({"encrypted_value": STANDARD.encode(b"plain"), "key_id": key["key_id"]});
    assert_eq!(ask(&github, "PUT", &path, &other).0, 422);
    assert_eq!(ask(&github, "DELETE", &path, &Value::Null).0, 204);
    assert_eq!(ask(&github, "GET", &path, &Value::Null).0, 404);
}

#[test]
fn faults_come_once_and_in_order() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["a"]);
    github.next("GET", "/labels", Fault::secondary_limit(1));
    github.next("GET", "/labels", Fault::Cut);
    github.meanwhile("GET", "/labels", |github| github.label_by("ana", SHOP, 7, &["b"], &[]));
    let path = "/repos/octo/shop/issues/7/labels";
    let labels = |(status, said): (u16, Value)| (status, said.as_array().map_or(0, Vec::len));
    assert_eq!(ask(&github, "GET", path, &Value::Null).0, 429);
    assert_eq!(ask(&github, "GET", path, &Value::Null).0, 0);
    assert_eq!(labels(ask(&github, "GET", path, &Value::Null)), (200, 2));
    assert_eq!(github.count("GET", "/labels"), 3);
}

#[test]
fn strangers_are_not_let_in() {
    let github = GitHub::start();
    let address = github.url();
    let (status, _) = http::send(
        address.trim_start_matches("http://"),
        "GET",
        "/user",
        &[("User-Agent", "test")],
        b"",
    );
    assert_eq!(status, 401);
}

#[test]
fn deliveries_are_what_github_publishes_and_signed_as_it_documents() {
    let github = GitHub::start();
    github.issue(SHOP, 7, &["run:dev"]);
    github.pull_request(SHOP, 8, "Closes #7", &["run:dev"]);
    let labeled = github.labeled("d1", SHOP, 7, "run:dev", "ana");
    assert_eq!(labeled.payload["issue"]["labels"][0]["name"], "run:dev");
    let reviewed = github.reviewed("d2", SHOP, 8, "changes_requested", "ana");
    assert_eq!(reviewed.payload["pull_request"]["number"], 8);
    github.pinged("d3", SHOP);
    // The example of GitHub's documentation.
    assert_eq!(
        signature("It's a Secret to Everybody", b"Hello, World!"),
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    );
}
