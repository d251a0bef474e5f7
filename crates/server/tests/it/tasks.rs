//! The tasks extension over the gateway's commands.

use serde_json::{Value, json};

use crate::client::{Client, error_of, modern_with};

const TASKS: &str = "io.modelcontextprotocol/tasks";

fn with_tasks(params: Value) -> Value {
    modern_with(params, json!({"extensions": {TASKS: {}}}))
}

async fn task(client: &mut Client, method: &str, id: &str) -> Value {
    client.ask("task", method, with_tasks(json!({"taskId": id}))).await
}

#[tokio::test]
async fn a_command_that_goes_on_is_a_task() {
    let mut client = Client::new();
    let created = client.ask(1, "tools/call", with_tasks(json!({"name": "long"}))).await;
    let result = &created["result"];
    let id = result["taskId"].as_str().unwrap().to_owned();
    assert_eq!(
        result,
        &json!({
            "resultType": "task",
            "taskId": id,
            "status": "working",
            "createdAt": "2026-11-15T10:00:00.000Z",
            "lastUpdatedAt": result["lastUpdatedAt"],
            "ttlMs": 86_400_000,
            "pollIntervalMs": 2_000,
            "_meta": result["_meta"],
        })
    );
    let working = task(&mut client, "tasks/get", &id).await["result"].clone();
    assert_eq!(
        (&working["status"], &working["resultType"]),
        (&json!("working"), &json!("complete"))
    );
    assert_eq!(working["result"], Value::Null);

    for (status, is_error) in [("ok", false), ("timeout", true)] {
        client.fake.commands.lock().unwrap().insert(id.clone(), status);
        let done = task(&mut client, "tasks/get", &id).await["result"].clone();
        assert_eq!(done["status"], "completed");
        assert_eq!(done["lastUpdatedAt"], "2026-11-15T10:00:05.000Z");
        assert_eq!(done["result"]["isError"], is_error);
        assert_eq!(done["result"]["structuredContent"]["status"], status);
        assert!(done["result"]["content"][0]["text"].is_string());
        assert_eq!(done["error"], Value::Null);
    }
}

#[tokio::test]
async fn a_task_whose_question_was_left_behind_says_that_the_call_is_to_be_repeated() {
    let mut client = Client::new();
    let created = client.ask(1, "tools/call", with_tasks(json!({"name": "long"}))).await;
    let id = created["result"]["taskId"].as_str().unwrap().to_owned();
    client.fake.commands.lock().unwrap().insert(id.clone(), "pending");
    let parked = task(&mut client, "tasks/get", &id).await["result"].clone();
    assert_eq!(parked["status"], "completed");
    assert_eq!(parked["result"]["structuredContent"]["status"], "pending");
}

#[tokio::test]
async fn a_cancelled_task_says_so_and_cancelling_again_does_no_harm() {
    let mut client = Client::new();
    let created = client.ask(1, "tools/call", with_tasks(json!({"name": "long"}))).await;
    let id = created["result"]["taskId"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let answer = task(&mut client, "tasks/cancel", &id).await["result"].clone();
        assert_eq!(answer, json!({"resultType": "complete", "_meta": answer["_meta"]}));
        let cancelled = task(&mut client, "tasks/get", &id).await["result"].clone();
        assert_eq!(cancelled["status"], "cancelled");
        assert_eq!(cancelled["result"], Value::Null);
    }
    let params = with_tasks(json!({"taskId": id, "inputResponses": {"nobody": {"action": "accept"}}}));
    let updated = client.ask(1, "tasks/update", params).await["result"].clone();
    assert_eq!(updated["resultType"], "complete");
}

#[tokio::test]
async fn a_task_nobody_has_is_unknown() {
    let mut client = Client::new();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = task(&mut client, method, "never-made").await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{method}");
        for params in [json!({}), json!({"taskId": 5})] {
            let answer = client.ask(1, method, with_tasks(params)).await;
            assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{method}");
        }
    }
}

#[tokio::test]
async fn clients_that_do_not_know_tasks_never_meet_one() {
    let mut client = Client::new();
    let plain = client
        .ask(1, "tools/call", modern_with(json!({"name": "long"}), json!({})))
        .await;
    assert_eq!(plain["result"]["resultType"], "complete");
    assert_eq!(plain["result"]["structuredContent"]["status"], "ok");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = modern_with(json!({"taskId": "gate-test"}), json!({}));
        let answer = client.ask(1, method, params).await;
        assert_eq!(error_of(&answer), (-32021, "MISSING_CLIENT_CAPABILITY"), "{method}");
        let required = &answer["error"]["data"]["requiredCapabilities"]["extensions"][TASKS];
        assert!(required.is_object());
    }
    let followed = with_tasks(json!({"name": "long", "_meta": {"progressToken": 1}}));
    let answer = client.ask(1, "tools/call", followed).await;
    assert_eq!(
        answer["result"]["resultType"], "complete",
        "who follows a call is not sent away"
    );
}

#[tokio::test]
async fn the_suites_tasks_end_as_they_should() {
    let mut client = Client::of_fixtures();
    let able = |params: Value| modern_with(params, json!({"elicitation": {}, "extensions": {TASKS: {}}}));
    let made = client.ask(1, "tools/call", able(json!({"name": "multi_input"}))).await["result"].clone();
    assert_eq!(made["resultType"], "task");
    let id = made["taskId"].as_str().unwrap();
    for (key, left) in [("unknown", 2), ("name", 1), ("confirm", 0)] {
        let accept = json!({"action": "accept", "content": {}});
        let params = able(json!({"taskId": id, "inputResponses": {key: accept}}));
        client.ask(2, "tasks/update", params).await;
        let now = client.ask(3, "tasks/get", able(json!({"taskId": id}))).await["result"].clone();
        let asks = now["inputRequests"].as_object().map_or(0, serde_json::Map::len);
        assert_eq!(asks, left, "{now}");
        assert_eq!(now["status"], if left > 0 { "input_required" } else { "completed" });
    }
    let refused = client
        .ask(4, "tools/call", modern_with(json!({"name": "failing_job"}), json!({})))
        .await;
    assert_eq!(error_of(&refused), (-32021, "MISSING_CLIENT_CAPABILITY"));
    let slow = able(json!({"name": "slow_compute", "arguments": {"seconds": 30}}));
    let slow = client.ask(5, "tools/call", slow).await["result"].clone();
    client
        .ask(6, "tasks/cancel", able(json!({"taskId": slow["taskId"]})))
        .await;
    let now = client
        .ask(7, "tasks/get", able(json!({"taskId": slow["taskId"]})))
        .await;
    assert_eq!(now["result"]["status"], "cancelled");
}
