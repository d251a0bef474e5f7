//! Prompts, completions and resources, in every revision.

use countersign_gateway::error::ErrorCode;
use serde_json::{Value, json};

use crate::client::{Client, error_of, modern_with};

const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// A client of a revision, which asks in its way.
struct Spoken(Client, bool, u64);

impl Spoken {
    async fn new(revision: &str) -> Self {
        match revision {
            "2026-07-28" => Self(Client::new(), true, 0),
            legacy => Self(Client::of(legacy).await, false, 0),
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.2 += 1;
        let params = if self.1 { modern_with(params, json!({})) } else { params };
        self.0.ask(self.2, method, params).await
    }
}

#[tokio::test]
async fn prompts_tell_an_agent_how_to_act() {
    for revision in REVISIONS {
        let mut client = Spoken::new(revision).await;
        let listed = client.ask("prompts/list", json!({})).await["result"]["prompts"].clone();
        let names: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|prompt| &prompt["name"])
            .collect();
        assert_eq!(names, ["explain-a-refusal", "run-a-command"], "{revision}");
        assert_eq!(listed[0]["title"].is_string(), revision >= "2025-06-18");
        assert_eq!(listed[0]["arguments"][0]["required"], true);

        let params = json!({"name": "run-a-command", "arguments": {"goal": "count the files"}});
        let got = client.ask("prompts/get", params).await["result"].clone();
        let text = got["messages"][0]["content"]["text"].as_str().unwrap();
        assert!(
            text.contains("count the files") && text.contains("execute_process"),
            "{text}"
        );
        let modern = revision == "2026-07-28";
        assert_eq!(got["resultType"], if modern { json!("complete") } else { Value::Null });

        for code in ErrorCode::ALL {
            let params = json!({"name": "explain-a-refusal", "arguments": {"error_code": code.name()}});
            let got = client.ask("prompts/get", params).await;
            let text = got["result"]["messages"][0]["content"]["text"].as_str().unwrap();
            assert!(text.contains(code.template()), "{text}");
        }
        for params in [
            json!({}),
            json!({"name": 5}),
            json!({"name": "unheard-of"}),
            json!({"name": "run-a-command"}),
            json!({"name": "run-a-command", "arguments": {"goal": 5}}),
            json!({"name": "run-a-command", "arguments": []}),
            json!({"name": "explain-a-refusal", "arguments": {"error_code": "NO_SUCH"}}),
        ] {
            let answer = client.ask("prompts/get", params.clone()).await;
            assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{params}");
        }
    }
}

#[tokio::test]
async fn arguments_are_completed() {
    for revision in REVISIONS {
        let mut client = Spoken::new(revision).await;
        let prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
        let template = json!({"type": "ref/resource", "uri": "countersign://errors/{code}"});
        for (reference, argument, value, expected) in [
            (
                prompt("run-a-command"),
                "tool",
                "exec",
                json!(["execute_command", "execute_process"]),
            ),
            (prompt("run-a-command"), "goal", "x", json!([])),
            (
                prompt("explain-a-refusal"),
                "error_code",
                "approval_p",
                json!(["APPROVAL_PENDING"]),
            ),
            (
                template.clone(),
                "code",
                "CWD",
                json!(["CWD_NOT_ALLOWED", "CWD_NOT_FOUND"]),
            ),
        ] {
            let params = json!({"ref": reference, "argument": {"name": argument, "value": value}});
            let result = client.ask("completion/complete", params).await["result"].clone();
            assert_eq!(result["completion"]["values"], expected, "{revision} {argument}");
            assert_eq!(result["completion"]["hasMore"], false);
        }
        for params in [
            json!({}),
            json!({"ref": prompt("run-a-command")}),
            json!({"ref": prompt("run-a-command"), "argument": {"name": "unheard", "value": ""}}),
            json!({"ref": prompt("unheard"), "argument": {"name": "tool", "value": ""}}),
            json!({"ref": {"type": "ref/tool"}, "argument": {"name": "tool", "value": ""}}),
            json!({"ref": template, "argument": {"name": "tool", "value": ""}}),
        ] {
            let answer = client.ask("completion/complete", params.clone()).await;
            assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{params}");
        }
    }
}

#[tokio::test]
async fn one_error_code_can_be_read() {
    for revision in REVISIONS {
        let mut client = Spoken::new(revision).await;
        let uri = "countersign://errors/POLICY_DENIED";
        let read = client.ask("resources/read", json!({"uri": uri})).await;
        let content = &read["result"]["contents"][0];
        assert_eq!(content["uri"], uri);
        let row: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
        assert_eq!(row["jsonRpcCode"], -32013);
        for uri in [
            "countersign://errors/",
            "countersign://errors/X",
            "countersign://errorsX",
            "countersign:",
        ] {
            let answer = client.ask("resources/read", json!({"uri": uri})).await;
            assert_eq!(error_of(&answer).1, "RESOURCE_NOT_FOUND", "{uri}");
        }
    }
}

#[tokio::test]
async fn the_policy_is_a_resource_and_is_the_readers_own() {
    for revision in REVISIONS {
        let mut client = Spoken::new(revision).await;
        let listed = client.ask("resources/list", json!({})).await;
        let uris: Vec<_> = listed["result"]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["uri"])
            .collect();
        assert_eq!(uris, ["countersign://errors", "countersign://policy"]);
        let read = client
            .ask("resources/read", json!({"uri": "countersign://policy"}))
            .await;
        let policy: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(policy, json!({"of": "agent"}));
        if revision == "2026-07-28" {
            assert_eq!(read["result"]["cacheScope"], "private");
        }
        let answer = client
            .ask("resources/read", json!({"uri": "countersign://policy/x"}))
            .await;
        assert_eq!(error_of(&answer).1, "RESOURCE_NOT_FOUND");
    }
}

#[tokio::test]
async fn each_era_has_only_its_own_methods() {
    let mut legacy = Spoken::new("2025-11-25").await;
    for method in ["subscriptions/listen", "tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = legacy.ask(method, json!({"taskId": "x", "notifications": {}})).await;
        assert_eq!(error_of(&answer), (-32601, "METHOD_NOT_FOUND"), "{method}");
    }
    let mut modern = Spoken::new("2026-07-28").await;
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "initialize",
        "tasks/list",
    ] {
        let answer = modern.ask(method, json!({"level": "debug"})).await;
        assert_eq!(error_of(&answer), (-32601, "METHOD_NOT_FOUND"), "{method}");
    }
}

#[tokio::test]
async fn every_tool_has_valid_schemas() {
    let own = countersign_gateway::tools::exec::schema::definitions();
    let schemas = own.into_iter().flat_map(|tool| {
        let name = tool.name.into_owned();
        [(name.clone(), tool.input_schema), (name, tool.output_schema)]
    });
    let listed = Client::of_fixtures()
        .ask(1, "tools/list", modern_with(json!({}), json!({})))
        .await;
    let fixtures = listed["result"]["tools"].as_array().unwrap().clone();
    assert!(fixtures.len() > 30);
    let fixtures = fixtures
        .into_iter()
        .map(|tool| (tool["name"].to_string(), tool["inputSchema"].clone()));
    for (name, schema) in schemas.chain(fixtures) {
        assert_eq!(schema["type"], "object", "{name}");
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        assert!(jsonschema::validator_for(&schema).is_ok(), "{name}");
    }
}
