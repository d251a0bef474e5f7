//! The OpenAPI document, made of the table.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::asked::{Form, Parameter, Place};
use super::endpoint::{Access, Answer, Endpoint};
use super::{callbacks, schemas, table, webhooks};

/// The document, written once: with the routes for services where there are any.
pub(super) fn answer(takes_callbacks: bool, takes_webhooks: bool) -> Response {
    static WRITTEN: [OnceLock<Bytes>; 4] = [const { OnceLock::new() }; 4];
    let place = usize::from(takes_callbacks) + 2 * usize::from(takes_webhooks);
    let written = WRITTEN[place].get_or_init(|| {
        let mut document = document();
        if takes_callbacks {
            document = with_callbacks(document);
        }
        if takes_webhooks {
            document = with_webhooks(document);
        }
        document.to_string().into()
    });
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], Bytes::clone(written)).into_response()
}

/// Adds the routes for services, which come with a token of their own.
fn with_callbacks(mut document: Value) -> Value {
    for (path, name, summary) in [
        (
            callbacks::APPROVER,
            "approverCallback",
            "What an approver that was asked decided.",
        ),
        (
            callbacks::EXECUTOR,
            "executorCallback",
            "The same for an executor, which may also say `status` and `result` of an act that was given to it.",
        ),
    ] {
        document["paths"][path]["post"] = json!({
            "operationId": name,
            "summary": summary,
            "description": "For whoever holds the callback token. The first answer stands; a repeated one is told it.",
            "security": [{"callback": []}, {"bearer": []}],
            "parameters": [{
                "name": "approval_request_id", "in": "query", "required": false, "schema": {"type": "string"},
                "description": "Which question, as in the address that the service was given.",
            }, {
                "name": "request_id", "in": "query", "required": false, "schema": {"type": "string"},
                "description": "Which act, as in the address that an executor was given.",
            }],
            "requestBody": {
                "required": true,
                "content": {"application/json": {"schema": reference("Callback")}},
            },
            "responses": {
                "200": {
                    "description": "The question as it stands now.",
                    "content": {"application/json": {"schema": reference("CalledBack")}},
                },
                "default": refused(),
            },
        });
    }
    let components = &mut document["components"];
    components["schemas"]["Callback"] = schemas::callback();
    components["schemas"]["CalledBack"] = schemas::called_back();
    components["securitySchemes"]["callback"] = json!({"type": "apiKey", "in": "header", "name": "X-Codex-MCP-Token",
        "description": "What `callbacks.token` of the configuration says; also taken as a bearer."});
    document
}

/// Adds the route for GitHub, which signs what it sends.
fn with_webhooks(mut document: Value) -> Value {
    let header = |name: &str, description: &str| json!({"name": name, "in": "header", "required": true, "schema": {"type": "string"}, "description": description});
    let answer = |description: &str| json!({"description": description, "content": {"application/json": {"schema": reference("Received")}}});
    document["paths"][webhooks::GITHUB]["post"] = json!({
        "operationId": "githubWebhook",
        "summary": "What GitHub delivers.",
        "description": "Each delivery is taken once. A `run:*` label sets off a run, a review that requests changes the revise of a stage.",
        "security": [{"signature": []}],
        "parameters": [
            header("X-GitHub-Delivery", "Which delivery; one that came before is a duplicate."),
            header("X-GitHub-Event", "What happened, such as `issues`."),
        ],
        "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": answer("It came before, or nothing follows from it."),
            "202": answer("It is written down and will be worked off."),
            "default": refused(),
        },
    });
    let components = &mut document["components"];
    components["schemas"]["Received"] = schemas::received();
    components["securitySchemes"]["signature"] = json!({"type": "apiKey", "in": "header", "name": "X-Hub-Signature-256",
        "description": "`sha256=` and the HMAC of the body under `github.webhook_secret`."});
    document
}

fn document() -> Value {
    let mut paths = Map::new();
    for endpoint in table::all() {
        let path = paths.entry(endpoint.address()).or_insert_with(|| json!({}));
        path[endpoint.method.as_str()] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Countersign",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Policy, approval, confinement and record between AI agents and a machine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `countersign tokens create`."},
                "login": {"type": "apiKey", "in": "cookie", "name": crate::office::COOKIE,
                    "description": "A browser that is logged in to the console."},
            },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let roles: Vec<_> = endpoint.access.roles().iter().map(|role| role.as_str()).collect();
    let mut responses = Map::new();
    for (status, answer) in endpoint.answers {
        let described = match answer {
            Answer::Nothing => json!({"description": "There is no more to say."}),
            other => json!({"description": "As asked.", "content": content(*other)}),
        };
        responses.insert(status.to_string(), described);
    }
    responses.insert("default".to_owned(), refused());
    let mut operation = json!({
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": format!("For {}.", roles.join(", ")),
        "x-countersign-roles": roles,
        "security": security(endpoint.access),
        "parameters": endpoint.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(name) = endpoint.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": reference(name)}},
        });
    }
    operation
}

fn refused() -> Value {
    json!({
        "description": "Refused; the code says why.",
        "content": {"application/json": {"schema": reference("Failure")}},
    })
}

/// Agents on the same machine may come without a token, where the configuration lets them.
fn security(access: Access) -> Value {
    match access {
        Access::Readers | Access::Deciders | Access::Operators => json!([{"bearer": []}, {"login": []}]),
        Access::Everybody | Access::Callers => json!([{"bearer": []}, {"login": []}, {}]),
    }
}

fn content(answer: Answer) -> Value {
    match answer {
        Answer::Json(name) => json!({"application/json": {"schema": reference(name)}}),
        Answer::ListOf(name) => json!({"application/json": {"schema": {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": reference(name)},
                "next": {"type": "integer", "description": "Given as `after`, it leads to the next page."},
            },
            "required": ["items"],
            "additionalProperties": false,
        }}}),
        Answer::Lines => json!({"application/jsonl": {"schema": {"type": "string"}}}),
        Answer::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        Answer::ListOrEvents(name) => {
            let mut both = content(Answer::ListOf(name));
            both["text/event-stream"] = json!({"schema": {"type": "string"}});
            both
        }
        Answer::Nothing => json!({}),
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    let mut described = json!({
        "name": parameter.name,
        "in": place,
        "description": parameter.about,
        "required": parameter.place == Place::Path,
        "schema": schema(parameter.form),
    });
    if let Form::Words(_) = parameter.form {
        described["style"] = json!("form");
        described["explode"] = json!(false);
    }
    described
}

fn schema(form: Form) -> Value {
    match form {
        Form::Text { chars_max } => json!({"type": "string", "minLength": 1, "maxLength": chars_max}),
        // Letters beyond these are taken as well; a pattern for them would be read differently everywhere.
        Form::Id { chars_max } => {
            json!({"type": "string", "minLength": 1, "maxLength": chars_max, "pattern": "^[!-~]+$"})
        }
        Form::Whole { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
        Form::Moment => json!({"type": "string", "examples": ["2026-11-15T10:00:00Z", "24h"],
            "anyOf": [{"format": "date-time"}, {"pattern": "^[0-9]{1,5}[smhd]$"}]}),
        Form::Flag => json!({"type": "boolean"}),
        Form::Word(words) => json!({"type": "string", "enum": words()}),
        Form::Words(words) => json!({"type": "array", "minItems": 1, "items": {"type": "string", "enum": words()}}),
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::endpoint::BASE;
    use super::*;

    #[test]
    fn every_row_of_the_table_is_an_operation_and_nothing_else_is() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                described.insert(format!(
                    "{method} {path} {}",
                    operation["operationId"].as_str().unwrap()
                ));
            }
        }
        let row = |it: &Endpoint| format!("{} {} {}", it.method.as_str(), it.address(), it.name);
        assert_eq!(described, table::all().map(row).collect());
        assert!(described.iter().all(|row| row.contains(&format!(" {BASE}/"))));
    }

    #[test]
    fn what_stands_in_a_path_is_a_parameter() {
        for endpoint in table::all() {
            let named = endpoint
                .path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            let known = endpoint.parameters.iter().filter(|it| it.place == Place::Path);
            assert_eq!(named.collect::<Vec<_>>(), known.map(|it| it.name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_schema_that_is_named_exists_and_every_one_that_exists_is_named() {
        let text = document().to_string();
        let named: BTreeSet<_> = text
            .split("#/components/schemas/")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let schemas = schemas::all();
        let known: BTreeSet<_> = schemas.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(named, known);
    }

    #[test]
    fn the_guide_tells_of_every_route_and_of_no_other() {
        let guide = include_str!("../../../../docs/guides/rest.md");
        let told = guide
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let told: BTreeSet<String> = told.filter(|row| row.contains(BASE)).map(str::to_owned).collect();
        let row = |it: &Endpoint| format!("{} {}", it.method.as_str().to_uppercase(), it.address());
        assert_eq!(told, table::all().map(row).collect());
    }

    #[test]
    fn the_callback_routes_are_described_where_they_are() {
        let document = with_callbacks(document());
        for path in [callbacks::APPROVER, callbacks::EXECUTOR] {
            assert!(document["paths"][path]["post"]["operationId"].is_string(), "{path}");
        }
        for name in ["Callback", "CalledBack"] {
            let schema = &document["components"]["schemas"][name];
            assert!(schema.is_object() && jsonschema::meta::is_valid(schema), "{name}");
        }
    }

    #[test]
    fn a_callback_is_described_with_every_field_that_is_read() {
        let schema = schemas::callback();
        let described: BTreeSet<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        let read = callbacks::FIELDS.replace(" and ", ", ");
        assert_eq!(described, read.split(", ").map(str::to_owned).collect());
        let document = with_callbacks(document());
        let parameters = document["paths"][callbacks::EXECUTOR]["post"]["parameters"]
            .as_array()
            .unwrap()
            .clone();
        let named: BTreeSet<_> = parameters.iter().filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(named, BTreeSet::from(["approval_request_id", "request_id"]));
    }

    #[test]
    fn the_webhook_route_is_described_where_it_is() {
        let document = with_webhooks(document());
        assert!(document["paths"][webhooks::GITHUB]["post"]["operationId"].is_string());
        let schema = &document["components"]["schemas"]["Received"];
        assert!(schema.is_object() && jsonschema::meta::is_valid(schema));
    }

    #[test]
    fn every_schema_is_one() {
        for (name, schema) in schemas::all().as_object().unwrap() {
            assert!(jsonschema::meta::is_valid(schema), "{name}");
        }
    }
}
