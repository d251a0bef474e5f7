//! Kubernetes' published description of its API, and whether somebody keeps to it.
//!
//! The objects are in the OpenAPI document of a release, which `tests/kubernetes/setup` fetches: they must have the
//! fields that it names, of its types, and no others. Secrets are read by the generated types besides, which need
//! nothing to be fetched. What can be asked is in the client that is generated from the same document: paths, verbs,
//! parameters, types of bodies and statuses. Not published in any form are the texts of refusals and what applying
//! means, which are written here by hand.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::Request;

/// What is published; none where it is not installed.
#[derive(Default)]
pub(super) struct Contract {
    /// The objects, by their names.
    definitions: Option<Value>,
    /// What can be asked.
    operations: Option<Vec<Operation>>,
}

#[derive(Deserialize)]
struct Operation {
    method: String,
    path: String,
    query: Vec<String>,
    content_types: Vec<String>,
    statuses: Vec<u16>,
}

impl Operation {
    fn is_at(&self, path: &str) -> bool {
        let parts = |path: &str| path.trim_matches('/').split('/').map(str::to_owned).collect::<Vec<_>>();
        let (own, asked) = (parts(&self.path), parts(path));
        let fits = |(own, asked): (&String, &String)| own.starts_with('{') || own == asked;
        own.len() == asked.len() && own.iter().zip(&asked).all(fits)
    }
}

impl Contract {
    /// What `tests/kubernetes/setup` fetched. Where it must be there and is not, the test fails.
    pub(super) fn installed() -> Self {
        let read = |name: &str| std::fs::read_to_string(home().join(name)).ok();
        let contract = Self {
            definitions: read("definitions.json").map(|text| serde_json::from_str(&text).unwrap()),
            operations: read("operations.json").map(|text| serde_json::from_str(&text).unwrap()),
        };
        let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
        let required = is("CI", "true") || is("COUNTERSIGN_REQUIRE_KUBERNETES", "1");
        let is_whole = contract.definitions.is_some() && contract.operations.is_some();
        let home = home();
        assert!(
            is_whole || !required,
            "{} is not whole; run tests/kubernetes/setup",
            home.display()
        );
        contract
    }

    /// Holds a request against what can be asked.
    pub(super) fn check_request(&self, request: &Request) -> Result<(), String> {
        let Some(operations) = &self.operations else {
            return Ok(());
        };
        let asked = format!("{} {}", request.method, request.path);
        let found = operations
            .iter()
            .find(|it| it.method == request.method && it.is_at(&request.path));
        let Some(operation) = found else {
            return Err(format!("there is no {asked}"));
        };
        if let Some((unknown, _)) = request.query.iter().find(|(name, _)| !operation.query.contains(name)) {
            return Err(format!("{asked} takes no parameter `{unknown}`"));
        }
        let types = &operation.content_types;
        match request.header("content-type") {
            Some(given) if !types.is_empty() && !types.iter().any(|it| it == given) => {
                Err(format!("{asked} takes no body of type `{given}`"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Holds the status of an answer to something that was done against what is published of it. Of refusals only
    /// one is.
    pub(super) fn check_status(&self, request: &Request, status: u16) -> Result<(), String> {
        let Some(operations) = &self.operations else {
            return Ok(());
        };
        let found = operations
            .iter()
            .find(|it| it.method == request.method && it.is_at(&request.path));
        match found {
            Some(operation) if status < 300 && !operation.statuses.contains(&status) => Err(format!(
                "{} {} is never answered {status}",
                request.method, request.path
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Holds an object against the definition of its kind.
    pub(super) fn check(&self, object: &Value) -> Result<(), String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind == "Secret" {
            by_types(object)?;
        }
        let Some(definitions) = &self.definitions else {
            return Ok(());
        };
        let name = match kind {
            "Secret" => "io.k8s.api.core.v1.Secret".to_owned(),
            "" => "io.k8s.apimachinery.pkg.version.Info".to_owned(),
            kind => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"),
        };
        let schema = json!({"$defs": definitions["$defs"], "$ref": format!("#/$defs/{name}")});
        let schema = jsonschema::validator_for(&schema).map_err(|error| format!("{name}: {error}"))?;
        let problems: Vec<_> = schema
            .iter_errors(object)
            .map(|error| format!("{} at {}", error, error.instance_path()))
            .collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!("{object} is no {name}: {}", problems.join("; "))),
        }
    }
}

/// Reads it by the generated types and writes it again: whatever they do not know is missing then.
fn by_types(secret: &Value) -> Result<(), String> {
    let read = serde_json::from_value::<Secret>(secret.clone());
    let written = read
        .map_err(|error| error.to_string())
        .map(|read| serde_json::to_value(read).unwrap());
    match written.as_ref() == Ok(secret) {
        true => Ok(()),
        false => Err(format!("{secret} is read as {written:?}")),
    }
}

fn home() -> PathBuf {
    match std::env::var_os("COUNTERSIGN_KUBERNETES") {
        Some(home) => PathBuf::from(home),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/kubernetes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, query: &[(&str, &str)], content_type: &str) -> Request {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.iter().map(owned).collect(),
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: Vec::new(),
        }
    }

    #[test]
    fn only_what_is_published_can_be_asked_and_answered() {
        let contract = Contract {
            definitions: None,
            operations: Some(vec![Operation {
                method: "PATCH".to_owned(),
                path: "/api/v1/namespaces/{namespace}/secrets/{name}".to_owned(),
                query: vec!["fieldManager".to_owned()],
                content_types: vec!["application/apply-patch+yaml".to_owned()],
                statuses: vec![200, 201, 401],
            }]),
        };
        let (place, apply) = ("/api/v1/namespaces/a/secrets/b", "application/apply-patch+yaml");
        let good = request("PATCH", place, &[("fieldManager", "x")], apply);
        assert_eq!(contract.check_request(&good), Ok(()));
        for (bad, why) in [
            (request("POST", place, &[], apply), "there is no POST"),
            (request("PATCH", "/api/v1/secrets/b", &[], apply), "there is no PATCH"),
            (
                request("PATCH", place, &[("fieldmanager", "x")], apply),
                "no parameter `fieldmanager`",
            ),
            (request("PATCH", place, &[], "application/json"), "no body of type"),
        ] {
            let said = contract.check_request(&bad).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(contract.check_status(&good, 201), Ok(()));
        assert_eq!(contract.check_status(&good, 422), Ok(()));
        assert!(contract.check_status(&good, 202).is_err());
    }
}
