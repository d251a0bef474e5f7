//! What a caller confides to a service is searched for in all that the service says later, whoever hears it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{EXECUTOR, TOKEN, call, holding};
use crate::bench::Bench;
use crate::client::Server;
use crate::outside::{Service, Serving};

const SECRET: &str = "hunter2hunter2hunter2";
/// The same as it travels: in base64, and in hexadecimal.
const ENCODED: &str = "aHVudGVyMmh1bnRlcjJodW50ZXIy";
const DIGITS: &str = "68756e746572326875";
const PIN: &str = "7391";

fn tool(service: &Service) -> String {
    format!(
        "tools:\n- name: unlock\n  description: opens a door\n  approval: none\n  timeout_ms: 20000\n  \
         input_schema: {{type: object, properties: {{door: {{type: string}}, words: {{type: string, writeOnly: true}}, \
         pin: {{type: integer, writeOnly: true}}}}}}\n  \
         executor: {{type: http, url: \"http://{}/doors\", async: true}}\n",
        service.address
    )
}

#[test]
fn what_a_service_was_given_is_found_in_every_later_callback_by_another_process_and_behind_a_new_start() {
    Bench::wherever(|bench| {
        let service = Service::answering("202 Accepted", Value::Null);
        let more = "listen: 127.0.0.1:0\ncallbacks: {token: callback-s3cret}\nanswer_within_ms: 300\n";
        let bench = holding(bench, &tool(&service), more);
        let serving = Serving::start(&bench);
        let mut server = Server::start(&bench);
        let arguments = json!({"door": "front", "words": SECRET, "pin": 7391});
        let (pending, _) = call(&mut server, "unlock", arguments.clone());
        assert_eq!(pending["status"], "pending", "{pending}");
        let asked = &service.asked()[0];
        assert_eq!(asked.body["arguments"], arguments, "the service itself is told");
        // Neither the one that sent it nor the one that listened then is there any more.
        server.end();
        serving.stop();
        let serving = Serving::start(&bench);
        let path = format!("{EXECUTOR}?request_id={}", pending["request_id"].as_str().unwrap());
        let said = format!("it was {SECRET}, in short {ENCODED}");
        for (body, status) in [
            (json!({"status": "success", "tool": SECRET, "reason": said}), 400),
            (json!({"status": "success", "correlation_id": SECRET}), 400),
            (json!({"status": "success", SECRET: 1}), 400),
            (
                json!({"status": "success", "result": 1, "reason": {"deep": SECRET}}),
                400,
            ),
            (
                json!({"decision": "denied", "reason": said, "metadata": {"x": [SECRET]}}),
                404,
            ),
        ] {
            let (answered, told) = serving.post(&path, TOKEN, &body);
            assert_eq!(answered, status, "{body}: {told}");
        }
        let done = json!({
            "status": "success", "actor_id": SECRET, "reason": said, "metadata": {"m": said},
            "result": {"got": said, "pin": 7391, "as text": PIN, "all": [PIN], "kept": "front", "x": format!("0x{DIGITS}")},
        });
        assert_eq!(serving.post(&path, TOKEN, &done).1["approval_state"], "applied");
        // What it says once more, behind the end, counts for nothing and is not kept.
        let late = json!({"status": "error", "reason": said, "metadata": {"late": SECRET}});
        assert_eq!(serving.post(&path, TOKEN, &late).0, 200);
        let mut server = Server::start(&bench);
        let (content, is_error) = call(&mut server, "unlock", arguments);
        assert!(!is_error, "{content}");
        let hidden = "[redacted]";
        assert_eq!(
            content["result"],
            json!({
                "got": "it was [redacted], in short [redacted]", "pin": hidden, "as text": hidden, "all": [hidden],
                "kept": "front", "x": format!("0x{DIGITS}"),
            }),
            "what is cut is not known again"
        );
        server.end();
        serving.stop();
        let callbacks = "SELECT count(*) FROM flow_events WHERE event_type = 'callback.received'";
        assert!(bench.count(callbacks) >= 6);
        for (table, column) in [("flow_events", "payload"), ("delegated_executions", "detail")] {
            for secret in [SECRET, ENCODED] {
                let found = format!("SELECT count(*) FROM {table} WHERE {column} LIKE '%{secret}%'");
                assert_eq!(bench.count(&found), 0, "{secret} in {table}");
            }
        }
        let actors = format!("SELECT count(*) FROM flow_events WHERE actor_id LIKE '%{SECRET}%'");
        let late = "SELECT count(*) FROM flow_events WHERE payload LIKE '%\"late\"%'";
        let sealed = "SELECT count(*) FROM delegated_executions WHERE length(confided) > 0";
        assert_eq!(
            (bench.count(&actors), bench.count(late), bench.count(sealed)),
            (0, 0, 0)
        );
        in_no_file_below(&bench.state());
        bench.prove();
    });
}

fn in_no_file_below(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            in_no_file_below(&path);
        } else if let Ok(bytes) = fs::read(&path) {
            let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!found, "{} holds it", path.display());
        }
    }
}
