//! Whatever a client does to its connection, others are served and nothing runs twice.

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::web::{Ask, Web, call, until};

#[derive(Clone, Copy, Debug)]
enum Era {
    Legacy,
    Modern,
}

fn tool() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("echo"), Just("report"), Just("wait"), Just("no_such_tool")]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The client goes after any byte that it sent, or after any that it read.
    #[test]
    fn a_client_may_go_at_any_byte(
        era in prop_oneof![Just(Era::Legacy), Just(Era::Modern)],
        tool in tool(),
        sent in 0.0..=1.0_f64,
        read in prop_oneof![Just(0_usize), 0..400_usize],
        progress in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let web = Web::start().await;
            let session = web.initialize("2025-11-25").await;
            let mut message = call(1, tool, json!({}));
            let mut ask = match era {
                Era::Legacy => Ask::post(message.clone()).session(&session),
                Era::Modern => Ask::modern(message.clone()),
            };
            if progress {
                message["params"]["_meta"] = match era {
                    Era::Legacy => json!({"progressToken": 1}),
                    Era::Modern => json!({
                        "progressToken": 1,
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientCapabilities": {},
                    }),
                };
                ask = ask.json(message);
            }
            let bytes = ask.bytes();
            let cut = (bytes.len() as f64 * sent) as usize;
            let mut client = web.connect().await;
            client.stream.write_all(&bytes[..cut]).await.unwrap();
            if cut == bytes.len() && read > 0 && tool != "wait" {
                let mut some = vec![0; read];
                let _ = client.stream.read(&mut some).await;
            }
            drop(client);
            until(|| web.gauges.connections() == 0).await;
            prop_assert!(web.fake.calls() <= 1);
            if let Era::Modern = era {
                let running = web.fake.calls() == 1 && tool == "wait";
                until(|| !running || web.fake.cancelled() == 1).await;
            } else {
                prop_assert_eq!(web.fake.cancelled(), 0);
            }
            let other = web.ask(Ask::post(call(2, "echo", json!({}))).session(&session)).await;
            prop_assert_eq!(&other.json()["id"], &json!(2));
            web.stop().await;
            Ok(())
        })?;
    }

    /// Bytes that mean nothing are refused in some way, and the next client is served.
    #[test]
    fn any_body_is_answered(body in prop::collection::vec(any::<u8>(), 0..200), modern in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let web = Web::start().await;
            let session = web.initialize("2025-03-26").await;
            let mut ask = Ask::post(Value::Null).session(&session).raw(body);
            if modern {
                ask = ask.header("MCP-Protocol-Version", "2026-07-28");
            }
            let reply = web.ask(ask).await;
            prop_assert!(reply.status == 400, "{:?}", reply);
            prop_assert!(reply.json()["error"]["code"].is_i64());
            Ok(())
        })?;
    }
}
