//! The Responses API, as Codex speaks it.

use serde_json::{Value, json};

use super::{Mark, Reply, Request, Server, fresh, reset_after};

pub(crate) fn start() -> Server {
    Server::start(answer)
}

fn answer(request: Request, reply: &mut Reply) {
    if request.method == "GET" {
        return reply.json(200, &json!({"object": "list", "data": [], "models": []}));
    }
    let (mark, outputs) = read(&request.body);
    if mark.name == "http" {
        let error = json!({"error": {"message": "asked to fail", "type": "server_error"}});
        return reply.json(mark.argument.parse().unwrap_or(500), &error);
    }
    if mark.name == "limit" {
        let reset = reset_after(&mark.argument);
        let headers = format!(
            "x-codex-primary-used-percent: 100.0\r\nx-codex-primary-window-minutes: 300\r\nx-codex-primary-reset-at: {reset}\r\n"
        );
        let error = json!({"error": {"type": "usage_limit_reached", "message": "the limit is reached", "plan_type": "plus", "resets_at": reset}});
        return reply.json_with(429, &headers, &error);
    }
    reply.begin_events();
    let id = fresh("resp");
    reply.event(&json!({"type": "response.created", "response": {"id": id}}));
    if mark.name == "hang" {
        return reply.hang();
    }
    let call = (outputs == 0).then(|| tool_call(&request.body, &mark)).flatten();
    match call {
        Some(call) => {
            reply.event(&json!({"type": "response.output_item.added", "output_index": 0, "item": call}));
            reply.event(&json!({"type": "response.output_item.done", "output_index": 0, "item": call}));
        }
        None => message(reply, &mark, outputs),
    }
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 107});
    reply.event(&json!({"type": "response.completed",
        "response": {"id": id, "status": "completed", "usage": usage, "output": []}}));
}

fn message(reply: &mut Reply, mark: &Mark, outputs: usize) {
    let text = match outputs {
        0 => mark.argument.clone(),
        _ => format!("done after {outputs} result(s)"),
    };
    let id = fresh("msg");
    let item = |content: Value| json!({"type": "message", "role": "assistant", "id": id, "content": content});
    reply.event(&json!({"type": "response.output_item.added", "output_index": 0, "item": item(json!([]))}));
    let pieces: usize = if mark.name == "slow" {
        mark.argument.parse().unwrap()
    } else {
        1
    };
    let mut whole = String::new();
    for piece in 0..pieces {
        let text = if pieces > 1 {
            format!("part {piece}. ")
        } else {
            text.clone()
        };
        reply.event(
            &json!({"type": "response.output_text.delta", "item_id": id, "output_index": 0,
            "content_index": 0, "delta": text}),
        );
        whole.push_str(&text);
        if pieces > 1 {
            reply.pause();
        }
    }
    reply.event(&json!({"type": "response.output_item.done", "output_index": 0,
        "item": item(json!([{"type": "output_text", "text": whole, "annotations": []}]))}));
}

/// The mark in the last message of the human, and how many tools answered since.
fn read(body: &Value) -> (Mark, usize) {
    let (mut last, mut outputs) = (String::new(), 0);
    for item in body["input"].as_array().into_iter().flatten() {
        let kind = item["type"].as_str().unwrap_or("message");
        if kind == "message" && item["role"] == "user" {
            let text: Vec<&str> = item["content"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|part| part["text"].as_str())
                .collect();
            let text = text.join("\n");
            // Context that the agent adds is not the human.
            if !text.trim_start().starts_with('<') {
                (last, outputs) = (text, 0);
            }
        } else if kind.ends_with("_call_output") {
            outputs += 1;
        }
    }
    (Mark::in_text(&last), outputs)
}

fn tool_call(body: &Value, mark: &Mark) -> Option<Value> {
    let call = |kind: &str| {
        json!({"type": kind, "id": fresh("fc"), "call_id": fresh("call"),
            "status": "completed"})
    };
    let shell = |line: &str, is_escalated: bool| {
        let mut arguments = json!({"cmd": line});
        if is_escalated {
            arguments["sandbox_permissions"] = json!("require_escalated");
            arguments["justification"] = json!("the test asks for it");
        }
        let mut item = call("function_call");
        item["name"] = json!("exec_command");
        item["arguments"] = json!(arguments.to_string());
        item
    };
    match mark.name.as_str() {
        "shell" => Some(shell(&mark.argument, false)),
        "shell!" => Some(shell(&mark.argument, true)),
        "patch" => {
            let (path, text) = mark.argument.split_once(' ')?;
            let patch = format!("*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch\n");
            let tools = body["tools"].as_array().into_iter().flatten();
            let is_offered = tools
                .filter_map(|tool| tool["name"].as_str())
                .any(|name| name == "apply_patch");
            if !is_offered {
                return Some(shell(&format!("apply_patch <<'EOF'\n{patch}EOF"), false));
            }
            let mut item = call("custom_tool_call");
            item["name"] = json!("apply_patch");
            item["input"] = json!(patch);
            Some(item)
        }
        "tool" => {
            let (name, arguments) = mark.argument.split_once(' ')?;
            let mut item = call("function_call");
            // Codex puts the tools of a server into a namespace: `mcp__server/tool`.
            let name = match name.split_once('/') {
                Some((namespace, name)) => {
                    item["namespace"] = json!(namespace);
                    name
                }
                None => name,
            };
            item["name"] = json!(name);
            item["arguments"] = json!(arguments);
            Some(item)
        }
        _ => None,
    }
}
