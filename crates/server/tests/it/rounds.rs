//! Asking a modern client: `input_required`, and the same request again.

use serde_json::{Value, json};

use crate::client::{Client, error_of, modern_with};

const STATEFUL: &str = "test_input_required_result_request_state";

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

async fn call(client: &mut Client, tool: &str, more: Value) -> Value {
    let mut params = json!({"name": tool});
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    client.ask(1, "tools/call", modern_with(params, able())).await
}

fn confirmed() -> Value {
    json!({"confirm": {"action": "accept", "content": {"ok": true}}})
}

async fn state(client: &mut Client) -> String {
    let asked = call(client, STATEFUL, json!({})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(
        asked["result"]["inputRequests"]["confirm"]["method"],
        "elicitation/create"
    );
    asked["result"]["requestState"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_state_comes_back_once_and_unchanged() {
    let mut client = Client::of_fixtures();
    let state = state(&mut client).await;
    let retry = json!({"requestState": state, "inputResponses": confirmed()});
    let done = call(&mut client, STATEFUL, retry.clone()).await;
    assert_eq!(done["result"]["resultType"], "complete");
    assert!(
        done["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("state-ok")
    );
    assert!(done["result"]["_meta"].is_object());

    let again = call(&mut client, STATEFUL, retry).await;
    assert_eq!(error_of(&again), (-32602, "INVALID_PARAMS"), "a state is good once");
}

#[tokio::test]
async fn a_changed_or_misplaced_state_is_refused_and_stays_good_where_it_belongs() {
    let mut client = Client::of_fixtures();
    let state = state(&mut client).await;
    let answers = confirmed();
    for changed in [
        format!("{state}-TAMPERED"),
        state.replace(':', ";"),
        state[1..].to_owned(),
        String::new(),
    ] {
        let retry = json!({"requestState": changed, "inputResponses": answers});
        let refused = call(&mut client, STATEFUL, retry).await;
        assert_eq!(error_of(&refused), (-32602, "INVALID_PARAMS"), "{changed}");
    }
    let other_tool = "test_input_required_result_tampered_state";
    let retry = json!({"requestState": state, "inputResponses": answers});
    assert_eq!(
        error_of(&call(&mut client, other_tool, retry.clone()).await).1,
        "INVALID_PARAMS"
    );
    let other_arguments = json!({"requestState": state, "inputResponses": answers, "arguments": {"x": 1}});
    assert_eq!(
        error_of(&call(&mut client, STATEFUL, other_arguments).await).1,
        "INVALID_PARAMS"
    );
    let mut stranger = Client::of_fixtures();
    assert_eq!(
        error_of(&call(&mut stranger, STATEFUL, retry.clone()).await).1,
        "INVALID_PARAMS"
    );
    assert_eq!(
        call(&mut client, STATEFUL, retry).await["result"]["resultType"],
        "complete"
    );
}

#[tokio::test]
async fn rounds_follow_one_another() {
    let mut client = Client::of_fixtures();
    let tool = "test_input_required_result_multi_round";
    let first = call(&mut client, tool, json!({})).await["result"].clone();
    let answers = json!({"step1": {"action": "accept", "content": {"name": "Ana"}}});
    let retry = json!({"requestState": first["requestState"], "inputResponses": answers});
    let second = call(&mut client, tool, retry).await["result"].clone();
    assert_eq!(second["resultType"], "input_required");
    assert_ne!(first["requestState"], second["requestState"]);
    assert!(second["inputRequests"]["step2"].is_object());
    let answers = json!({"step2": {"action": "accept", "content": {"color": "blue"}}});
    let retry = json!({"requestState": second["requestState"], "inputResponses": answers});
    let third = call(&mut client, tool, retry).await["result"].clone();
    let text = third["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Ana") && text.contains("blue"), "{text}");
}

#[tokio::test]
async fn missing_wrong_and_extra_answers() {
    let mut client = Client::of_fixtures();
    let tool = "test_input_required_result_elicitation";
    let accept = json!({"action": "accept", "content": {"name": "Alice"}});
    for (responses, kind) in [
        (json!({"wrong_key": accept}), "input_required"),
        (json!({"user_name": 12345}), "input_required"),
        (json!({"user_name": accept, "unknown_extra_key": 1}), "complete"),
    ] {
        let answer = call(&mut client, tool, json!({"inputResponses": responses})).await;
        assert_eq!(answer["result"]["resultType"], kind, "{answer}");
    }
    for responses in [json!(null), json!([]), json!("x")] {
        let answer = call(&mut client, tool, json!({"inputResponses": responses})).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
    }
}

#[tokio::test]
async fn only_what_the_client_declared_is_asked_for() {
    let mut client = Client::of_fixtures();
    let ask = |tool: &str, capabilities: Value| modern_with(json!({"name": tool}), capabilities);
    let params = ask("test_input_required_result_capabilities", json!({"sampling": {}}));
    let answer = client.ask(1, "tools/call", params).await;
    let requests = answer["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests["capital_question"]["method"], "sampling/createMessage");
    let params = ask("test_input_required_result_elicitation", json!({"sampling": {}}));
    let answer = client.ask(2, "tools/call", params).await;
    assert_eq!(error_of(&answer), (-32021, "MISSING_CLIENT_CAPABILITY"));
    let params = ask("test_missing_capability", json!({}));
    let answer = client.ask(3, "tools/call", params).await;
    assert_eq!(error_of(&answer), (-32021, "MISSING_CLIENT_CAPABILITY"));
    assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
}

#[tokio::test]
async fn a_prompt_asks_the_same_way() {
    let mut client = Client::of_fixtures();
    let params = json!({"name": "test_input_required_result_prompt"});
    let asked = client.ask(1, "prompts/get", modern_with(params.clone(), able())).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    let mut retry = params;
    retry["inputResponses"] = json!({"user_context": {"action": "accept", "content": {"context": "tests"}}});
    let done = client.ask(2, "prompts/get", modern_with(retry, able())).await;
    assert_eq!(done["result"]["resultType"], "complete");
    assert!(
        done["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("tests")
    );
}

#[tokio::test]
async fn without_the_flag_no_fixture_exists() {
    let mut client = Client::new();
    let answer = client
        .ask(1, "tools/call", modern_with(json!({"name": STATEFUL}), able()))
        .await;
    assert_eq!(error_of(&answer), (-32602, "UNKNOWN_TOOL"));
    let listed = client.ask(2, "tools/list", modern_with(json!({}), able())).await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1);
    let listed = client.ask(3, "prompts/list", modern_with(json!({}), able())).await;
    assert!(!listed.to_string().contains("test_"));
}
