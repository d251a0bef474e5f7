//! What is shipped to run the server with is valid, and agrees with itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::root;

fn manifests() -> Vec<Value> {
    let text = fs::read_to_string(root().join("deploy/kubernetes/countersign.yaml")).expect("the manifests");
    serde_saphyr::from_multiple(&text).expect("YAML")
}

/// Reads an object as what Kubernetes publishes of its kind. What is unknown there gets lost on the way, and is missed.
fn check<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object:#}"));
    let back = serde_json::to_value(typed).expect("JSON");
    assert_known(object, &back, &mut vec![object["kind"].to_string()]);
}

fn assert_known(given: &Value, known: &Value, place: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                place.push(name.clone());
                let found = known.get(name);
                // An empty object may be left out when it is written again.
                assert!(
                    found.is_some() || *value == serde_json::json!({}),
                    "unknown: {}",
                    place.join(".")
                );
                assert_known(value, found.unwrap_or(value), place);
                place.pop();
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                place.push(index.to_string());
                assert_known(given, known, place);
                place.pop();
            }
        }
        (given, known) => assert_eq!(given, known, "{}", place.join(".")),
    }
}

#[test]
fn the_manifests_are_what_kubernetes_knows() {
    let mut kinds = Vec::new();
    for object in &manifests() {
        let kind = object["kind"].as_str().unwrap_or_default();
        match (object["apiVersion"].as_str().unwrap_or_default(), kind) {
            ("v1", "ConfigMap") => check::<ConfigMap>(object),
            ("v1", "Secret") => check::<Secret>(object),
            ("v1", "Service") => check::<Service>(object),
            ("policy/v1", "PodDisruptionBudget") => check::<PodDisruptionBudget>(object),
            ("apps/v1", "StatefulSet") => check::<StatefulSet>(object),
            other => panic!("{other:?} is not checked"),
        }
        kinds.push(kind.to_owned());
    }
    assert_eq!(
        kinds,
        [
            "ConfigMap",
            "Secret",
            "Service",
            "Service",
            "PodDisruptionBudget",
            "StatefulSet"
        ]
    );
}

#[test]
fn pods_run_as_the_images_user_with_a_state_directory_and_probes() {
    let objects = manifests();
    let set = &objects
        .iter()
        .find(|object| object["kind"] == "StatefulSet")
        .expect("one")["spec"];
    let pod = &set["template"]["spec"];
    let image = fs::read_to_string(root().join("Dockerfile")).expect("the Dockerfile");
    let user = pod["securityContext"]["runAsUser"].as_u64().expect("a user");
    assert!(image.contains(&format!("USER {user}:")) && user != 0);
    let served = &pod["containers"][0];
    for (probe, path) in [
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
        ("startupProbe", "/healthz"),
    ] {
        assert_eq!(served[probe]["httpGet"]["path"], path, "{probe}");
    }
    let mounts = served["volumeMounts"].as_array().expect("mounts");
    let state = mounts.iter().find(|mount| mount["name"] == "state").expect("the state");
    let place = state["mountPath"].as_str().expect("a path");
    assert!(image.contains(&format!("COUNTERSIGN_STATE_DIR={place}/")), "{place}");
    assert_eq!(set["volumeClaimTemplates"][0]["metadata"]["name"], "state");
    assert_eq!(pod["initContainers"][0]["volumeMounts"], served["volumeMounts"]);
}

#[test]
fn the_image_is_built_by_a_compiler_that_is_new_enough_from_files_that_are_there() {
    let image = fs::read_to_string(root().join("Dockerfile")).expect("the Dockerfile");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let number = |text: &str| -> Vec<u32> { text.split('.').map_while(|part| part.parse().ok()).collect() };
    let needed = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .expect("a version");
    let given = image
        .lines()
        .find_map(|line| line.strip_prefix("FROM docker.io/library/rust:"))
        .expect("a compiler");
    let given = given.split('-').next().expect("a version");
    assert!(
        number(given) >= number(needed.trim_matches('"')),
        "{given} is older than {needed}"
    );
    // What is copied is the whole folder; nothing that is built from may be left out of it.
    let left_out = fs::read_to_string(root().join(".dockerignore")).expect("what is left out");
    let listed = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .expect("git");
    if !listed.status.success() {
        println!("skipped: this is no checkout");
        return;
    }
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.lines().any(|file| file == "Cargo.lock"),
        "it is built with `--locked`"
    );
    for folder in left_out.lines() {
        let within = |file: &&str| *file == folder || file.starts_with(&format!("{folder}/"));
        assert_eq!(
            listed.lines().find(within),
            None,
            "`{folder}` is left out of the image and is part of the source"
        );
    }
}

#[test]
fn the_configuration_in_the_manifests_is_understood() {
    let objects = manifests();
    let map = objects
        .iter()
        .find(|object| object["kind"] == "ConfigMap")
        .expect("one");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("config.yaml");
    fs::write(&file, map["data"]["config.yaml"].as_str().expect("text")).expect("written");
    let checked = Command::new(env!("CARGO_BIN_EXE_countersign"))
        .args(["policy", "check"])
        .arg(&file)
        .env_clear()
        .env("HOME", place.path())
        .output()
        .expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_unit_is_what_systemd_knows() {
    let unit = fs::read_to_string(root().join("deploy/systemd/countersign.service")).expect("the unit");
    // What the sandbox of commands needs must not be taken away by the service's own.
    let set = |name: &str| unit.lines().any(|line| line.starts_with(&format!("{name}=")));
    for taken in [
        "RestrictNamespaces",
        "SystemCallFilter",
        "PrivateUsers",
        "ProtectProc",
        "ProtectKernelTunables",
    ] {
        assert!(!set(taken), "{taken}");
    }
    assert!(set("NoNewPrivileges") && set("Delegate") && set("User"));
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        println!("skipped: systemd-analyze is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("countersign.service");
    // Only programs that exist pass.
    fs::write(
        &file,
        unit.replace("/usr/local/bin/countersign", env!("CARGO_BIN_EXE_countersign")),
    )
    .expect("written");
    let checked = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(
        checked.status.success() && !said.contains("countersign.service:"),
        "{said}"
    );
}
