//! The HTTP listener, spoken to in plain text.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_gateway::audit::Pending;
use countersign_server::http::{About, HttpError, HttpOptions, Readiness, serve_http};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake::Fake;
use crate::web;

struct Database(AtomicBool);

impl Readiness for Database {
    fn check(&self) -> Pending<Result<(), String>> {
        let there = self.0.load(Ordering::SeqCst);
        Box::pin(async move { there.then_some(()).ok_or_else(|| "the database is away".to_owned()) })
    }
}

struct Server {
    address: SocketAddr,
    database: Arc<Database>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), HttpError>>,
}

async fn start() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let database = Arc::new(Database(AtomicBool::new(true)));
    let (stop, stopped) = oneshot::channel();
    let options = HttpOptions {
        about: About {
            workspace: "/home/ana/<b>work</b>".to_owned(),
            policy_mode: "untrusted".to_owned(),
            state_directory: "/var/lib/\"x\"".to_owned(),
        },
        readiness: database.clone(),
        shutdown_grace: Duration::from_millis(100),
        ..web::options(&Arc::new(Fake::default()))
    };
    let task = tokio::spawn(serve_http(listener, options, stopped));
    Server {
        address,
        database,
        stop,
        task,
    }
}

impl Server {
    /// Status line, headers and body of the answer to one request.
    async fn ask(&self, method: &str, path: &str, headers: &str) -> (u16, String, String) {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    async fn get(&self, path: &str) -> (u16, String, String) {
        self.ask("GET", path, &format!("Host: {}\r\n", self.address)).await
    }
}

#[tokio::test]
async fn it_says_whether_it_lives_and_can_work() {
    let server = start().await;
    assert_eq!(server.get("/healthz").await.2, r#"{"status":"ok"}"#);
    let (status, _, body) = server.get("/readyz").await;
    assert_eq!((status, body.as_str()), (200, r#"{"status":"ready"}"#));
    server.database.0.store(false, Ordering::SeqCst);
    let (status, _, body) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(body, r#"{"status":"unavailable","reason":"the database is away"}"#);
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn every_answer_is_hardened() {
    let server = start().await;
    for path in ["/healthz", "/readyz", "/nothing"] {
        let (_, head, _) = server.get(path).await;
        for line in [
            "content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(line), "{path} lacks {line}: {head}");
        }
    }
}

#[tokio::test]
async fn other_names_and_other_sites_are_refused() {
    let server = start().await;
    for (headers, status) in [
        ("Host: localhost\r\n", 200),
        ("Host: localhost:9999\r\n", 200),
        ("Host: [::1]:7420\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: localhost.evil.example\r\n", 403),
        ("Host: localhost\r\nHost: evil.example\r\n", 403),
        ("", 403),
        ("Host: localhost\r\nOrigin: http://localhost:3000\r\n", 200),
        ("Host: localhost\r\nOrigin: http://127.0.0.1\r\n", 200),
        ("Host: localhost\r\nOrigin: https://evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
    ] {
        let answer = server.ask("GET", "/healthz", headers).await;
        assert_eq!(answer.0, status, "{headers}");
        if status == 403 {
            assert!(answer.2.contains("FORBIDDEN") && answer.1.contains("content-security-policy"));
        }
    }
    let absolute = server
        .ask("GET", "http://evil.example/healthz", "Host: localhost\r\n")
        .await;
    assert_eq!(absolute.0, 403);
}

#[tokio::test]
async fn unknown_addresses_and_methods_are_said_in_one_form() {
    let server = start().await;
    let (status, _, body) = server.get("/nothing").await;
    assert_eq!(status, 404);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"error": {
            "errorCode": "NOT_FOUND",
            "message": "there is nothing at this address",
            "details": {},
            "correlation_id": "00000000-0000-7000-8000-000000000000",
        }})
    );
    let host = format!("Host: {}\r\n", server.address);
    let (status, head, _) = server.ask("POST", "/healthz", &host).await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get,head"), "{head}");
    assert_eq!(server.ask("HEAD", "/healthz", &host).await.0, 200);
}

#[tokio::test]
async fn it_stops_when_told_also_with_connections_open() {
    let server = start().await;
    let mut half = TcpStream::connect(server.address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    server.get("/healthz").await;
    server.stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), server.task).await;
    ended.expect("in time").expect("no panic").expect("a clean end");
    assert!(TcpStream::connect(server.address).await.is_err());
}
