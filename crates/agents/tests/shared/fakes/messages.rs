//! The Messages API, as Claude Code speaks it.

use serde_json::{Value, json};

use super::{Mark, Reply, Request, Server, fresh, reset_after};

pub(crate) fn start() -> Server {
    Server::start(answer)
}

fn answer(request: Request, reply: &mut Reply) {
    if request.path.ends_with("/count_tokens") {
        return reply.json(200, &json!({"input_tokens": 100}));
    }
    if request.method != "POST" || !request.path.ends_with("/messages") {
        return reply.json(
            404,
            &json!({"type": "error", "error": {"type": "not_found_error", "message": "not here"}}),
        );
    }
    let (mark, results) = read(&request.body);
    if mark.name == "http" {
        let error = json!({"type": "error", "error": {"type": "api_error", "message": "asked to fail"}});
        return reply.json(mark.argument.parse().unwrap_or(500), &error);
    }
    if mark.name == "limit" {
        let headers = format!(
            "anthropic-ratelimit-unified-status: rejected\r\nanthropic-ratelimit-unified-representative-claim: five_hour\r\n\
             anthropic-ratelimit-unified-reset: {}\r\n",
            reset_after(&mark.argument)
        );
        let error = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "the limit is reached"}});
        return reply.json_with(429, &headers, &error);
    }
    let shell = shell_of(&request.body);
    let call = (results == 0).then(|| tool_use(&mark, shell)).flatten();
    let text = match (&call, results) {
        (None, 0) => mark.argument.clone(),
        _ => format!("done after {results} result(s)"),
    };
    let message = json!({"id": fresh("msg"), "type": "message", "role": "assistant", "model": request.body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0}});
    let stop = if call.is_some() { "tool_use" } else { "end_turn" };
    if request.body["stream"] != json!(true) {
        let block = call.unwrap_or_else(|| json!({"type": "text", "text": text}));
        let mut message = message;
        message["content"] = json!([block]);
        message["stop_reason"] = json!(stop);
        return reply.json(200, &message);
    }
    reply.begin_events();
    reply.event(&json!({"type": "message_start", "message": message}));
    if mark.name == "hang" {
        return reply.hang();
    }
    match &call {
        Some(call) => {
            let mut empty = call.clone();
            empty["input"] = json!({});
            reply.event(&json!({"type": "content_block_start", "index": 0, "content_block": empty}));
            reply.event(&json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": call["input"].to_string()}}));
        }
        None => {
            reply.event(
                &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            let pieces: usize = if mark.name == "slow" {
                mark.argument.parse().unwrap()
            } else {
                1
            };
            for piece in 0..pieces {
                let text = if pieces > 1 {
                    format!("part {piece}. ")
                } else {
                    text.clone()
                };
                reply.event(
                    &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
                );
                if pieces > 1 {
                    reply.pause();
                }
            }
        }
    }
    reply.event(&json!({"type": "content_block_stop", "index": 0}));
    reply.event(&json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 7}}));
    reply.event(&json!({"type": "message_stop"}));
}

/// The mark in the last message of the human, and how many results came since.
fn read(body: &Value) -> (Mark, usize) {
    let (mut last, mut results) = (String::new(), 0);
    for message in body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|message| message["role"] == "user")
    {
        let blocks = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        for block in blocks {
            match block["type"].as_str() {
                Some("tool_result") => results += 1,
                // Reminders that the agent adds are not the human.
                Some("text") if !block["text"].as_str().unwrap_or("").trim_start().starts_with('<') => {
                    last = block["text"].as_str().unwrap_or("").to_owned();
                    results = 0;
                }
                _ => {}
            }
        }
    }
    (Mark::in_text(&last), results)
}

/// The shell of whoever asks: agents spell its name as they like.
fn shell_of(body: &Value) -> &str {
    let tools = body["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["name"].as_str());
    names
        .into_iter()
        .find(|name| name.eq_ignore_ascii_case("bash"))
        .unwrap_or("Bash")
}

fn tool_use(mark: &Mark, shell: &str) -> Option<Value> {
    let (name, input) = match mark.name.as_str() {
        "shell" => (
            shell,
            json!({"command": mark.argument, "description": "asked by the test"}),
        ),
        "write" => {
            let (path, text) = mark.argument.split_once(' ')?;
            ("Write", json!({"file_path": path, "content": text}))
        }
        "tool" => {
            let (name, input) = mark.argument.split_once(' ')?;
            (name, serde_json::from_str(input).ok()?)
        }
        _ => return None,
    };
    Some(json!({"type": "tool_use", "id": fresh("toolu"), "name": name, "input": input}))
}
