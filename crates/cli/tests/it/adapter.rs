//! The example adapter between the real server and a Bot API of our own: questions reach the chat, and
//! what is pressed there decides.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::outside::{Service, Serving, free_port, until};

const CHAT: i64 = -100;

/// Telegram, as far as a bot sees it.
struct Telegram {
    service: Service,
    updates: Arc<Mutex<Vec<Value>>>,
}

impl Telegram {
    fn start() -> Self {
        let updates: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = updates.clone();
        let service = Service::with(move |asked| {
            assert!(asked.path.starts_with("/botb0t/"), "{}", asked.path);
            let result = if asked.path.ends_with("/getUpdates") {
                let from = asked.body["offset"].as_i64().unwrap();
                let mut updates = kept.lock().unwrap();
                updates.retain(|update| update["update_id"].as_i64().unwrap() >= from);
                let found = json!(*updates);
                drop(updates);
                if found == json!([]) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                found
            } else {
                json!({"message_id": 1})
            };
            ("200 OK", json!({"ok": true, "result": result}).to_string())
        });
        Self { service, updates }
    }

    fn said(&self, method: &str) -> Vec<Value> {
        let all = self.service.asked().into_iter();
        let of = all.filter(|asked| asked.path.ends_with(&format!("/{method}")));
        of.map(|asked| asked.body).collect()
    }

    /// The so-manieth message in the chat, once it is there.
    #[track_caller]
    fn message(&self, number: usize) -> Value {
        until("no message comes", || self.said("sendMessage").len() > number);
        self.said("sendMessage")[number].clone()
    }

    fn happens(&self, mut update: Value) {
        let mut updates = self.updates.lock().unwrap();
        let last = updates.last().and_then(|update| update["update_id"].as_i64());
        update["update_id"] = json!(last.unwrap_or(self.said("getUpdates").len() as i64 + 1_000_000) + 1);
        updates.push(update);
    }

    /// Somebody presses a button of a message.
    fn press(&self, message: &Value, button: &str, chat: i64) {
        let rows = message["reply_markup"]["inline_keyboard"].as_array().unwrap().iter();
        let mut buttons = rows.flat_map(|row| row.as_array().unwrap());
        let pressed = buttons.find(|it| it["text"] == button).expect(button);
        let data = pressed["callback_data"].as_str().unwrap();
        assert!(data.len() <= 64, "Telegram takes no more: {data}");
        self.happens(json!({"callback_query": {
            "id": "p", "from": {"id": 7, "username": "ana"}, "data": data, "message": {"chat": {"id": chat}},
        }}));
    }
}

struct Adapter(Child);

impl Adapter {
    fn start(telegram: &Telegram, listen: u16, countersign: u16) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/telegram-approver/telegram_approver.py");
        let mut child = Command::new("python3")
            .arg("-B")
            .arg(script)
            .env("TELEGRAM_BOT_TOKEN", "b0t")
            .env("TELEGRAM_CHAT_ID", CHAT.to_string())
            .env("TELEGRAM_API", format!("http://{}", telegram.service.address))
            .env("TELEGRAM_POLL_SECONDS", "0")
            .env("APPROVER_KEY", "k3y")
            .env("COUNTERSIGN_CALLBACK_TOKEN", "callback-s3cret")
            .env("COUNTERSIGN_URL", format!("http://127.0.0.1:{countersign}"))
            .env("LISTEN", format!("127.0.0.1:{listen}"))
            .env("no_proxy", "127.0.0.1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert!(said.contains("listening"), "{said}");
        Self(child)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Server, adapter and chat, and a question on its way there.
struct Scene {
    bench: Bench,
    telegram: Telegram,
    adapter: Adapter,
    ports: (u16, u16),
    _serving: Serving,
    server: Server,
}

fn scene(more: &str) -> Scene {
    let ports = (free_port(), free_port());
    let telegram = Telegram::start();
    let adapter = Adapter::start(&telegram, ports.0, ports.1);
    let bench = Bench::new()
        .config(&format!(
            "listen: 127.0.0.1:{}\n\
             callbacks: {{token: callback-s3cret}}\n\
             approvers: [{{name: telegram, type: http, url: \"http://127.0.0.1:{}/approve\", async: true, \
             headers: {{Authorization_env: APPROVER_AUTHORIZATION}}}}]\n{more}",
            ports.1, ports.0
        ))
        .env("APPROVER_AUTHORIZATION", "Bearer k3y");
    let serving = Serving::start(&bench);
    let server = Server::start(&bench);
    Scene {
        bench,
        telegram,
        adapter,
        ports,
        _serving: serving,
        server,
    }
}

fn touch() -> Value {
    json!({"file": "touch", "args": ["made"]})
}

#[test]
fn what_is_pressed_in_the_chat_decides() {
    let mut scene = scene("");
    let call = scene.server.call_later("execute_process", touch());
    let message = scene.telegram.message(0);
    assert_eq!(message["chat_id"], CHAT.to_string());
    let text = message["text"].as_str().unwrap();
    assert!(
        text.contains("touch made") && text.contains("The caller gave no justification."),
        "{text}"
    );
    // Anybody may write to a bot; only this chat decides.
    scene.telegram.press(&message, "Approve", 666);
    scene.telegram.press(&message, "Approve", CHAT);
    scene.server.result(call).ok();
    assert!(scene.bench.work().join("made").exists());
    let told = scene.telegram.message(1);
    assert!(
        told["text"]
            .as_str()
            .unwrap()
            .starts_with("approve by telegram:ana: appl")
            || told["text"]
                .as_str()
                .unwrap()
                .starts_with("approve by telegram:ana: appr"),
        "{told}"
    );
    let who = "SELECT count(*) FROM flow_events WHERE event_type = 'approval.approved' AND actor_id = 'telegram:ana'
        AND payload ->> '$.credential' = 'callback'";
    assert_eq!(scene.bench.count(who), 1);
}

#[test]
fn a_denial_in_the_chat_carries_its_reason_to_the_agent() {
    let mut scene = scene("");
    let call = scene.server.call_later("execute_process", touch());
    let message = scene.telegram.message(0);
    scene.telegram.press(&message, "Deny with a reason", CHAT);
    let why = scene.telegram.message(1);
    assert_eq!(why["reply_markup"]["force_reply"], true);
    // It keeps nothing: a new one knows what the reply is about.
    drop(scene.adapter);
    scene.adapter = Adapter::start(&scene.telegram, scene.ports.0, scene.ports.1);
    scene.telegram.happens(json!({"message": {
        "chat": {"id": CHAT}, "from": {"id": 8}, "text": "use make install",
        "reply_to_message": {"text": why["text"]},
    }}));
    let outcome = scene.server.result(call);
    outcome.refused("APPROVAL_DENIED");
    let said = outcome.message();
    assert!(
        said.contains("use make install") && said.contains("telegram:8"),
        "{said}"
    );
    assert!(!scene.bench.work().join("made").exists());
}

#[test]
fn a_press_that_comes_too_late_is_told_so_and_changes_nothing() {
    let mut scene = scene("approval_policy: {timeout_ms: 2000}\n");
    let call = scene.server.call_later("execute_process", touch());
    let message = scene.telegram.message(0);
    scene.server.result(call).refused("APPROVAL_EXPIRED");
    scene.telegram.press(&message, "Approve", CHAT);
    let told = scene.telegram.message(1);
    assert!(
        told["text"].as_str().unwrap().contains("came too late: it is expired"),
        "{told}"
    );
    assert!(!scene.bench.work().join("made").exists());
}

#[test]
fn the_adapter_shows_nothing_that_does_not_come_from_countersign() {
    let telegram = Telegram::start();
    let port = free_port();
    let _adapter = Adapter::start(&telegram, port, free_port());
    let address = format!("127.0.0.1:{port}");
    for (headers, body, status) in [
        ("", "{}", 401),
        ("Authorization: Bearer other\r\n", "{}", 401),
        ("Authorization: Bearer k3y\r\n", "nonsense", 400),
        ("Authorization: Bearer k3y\r\n", "[]", 400),
    ] {
        let (said, _) = crate::outside::send(&address, "POST", "/approve", headers, body);
        assert_eq!(said, status, "{headers}{body}");
    }
    assert!(telegram.said("sendMessage").is_empty());
}
