//! The witness at an address: it is told every checkpoint, also the last, and a record made anew contradicts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::bench::Bench;
use crate::outside::{Service, Serving};

/// A bench with a witness at the service, which is only told when the server ends: few rows are signed before that.
fn watched(service: &Service) -> Bench {
    let witness = format!("http://{}/told", service.address);
    Bench::configured(
        "echo",
        &format!("listen: 127.0.0.1:0\naudit: {{witness: '{witness}'}}\n"),
    )
}

fn lines(told: &[Value]) -> String {
    told.iter().map(|checkpoint| format!("{checkpoint}\n")).collect()
}

#[test]
fn a_witness_at_an_address_is_told_what_was_signed_last_and_the_record_is_held_to_it() {
    let service = Service::answering("204 No Content", Value::Null);
    let bench = watched(&service);
    Serving::start(&bench).stop();
    let told: Vec<Value> = service.until_asked(1).into_iter().map(|asked| asked.body).collect();
    assert_eq!(told.last().unwrap()["kind"], "stop", "{told:?}");
    let file = bench.file("told.jsonl", lines(&told));
    let verify = |bench: &Bench| {
        let mut command = bench.command();
        command.args(["audit", "verify", "--witness"]).arg(&file);
        command.output().unwrap()
    };
    let sound = verify(&bench);
    assert!(sound.status.success(), "{sound:?}");
    // Another record than the one that was witnessed.
    let other = watched(&service);
    Serving::start(&other).stop();
    let unsound = verify(&other);
    assert_eq!(unsound.status.code(), Some(1));
    let said = String::from_utf8_lossy(&unsound.stderr).into_owned();
    assert!(said.contains("the witness was told by another one"), "{said}");
}

#[test]
fn a_witness_that_is_away_holds_nothing_up_and_is_told_again() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = refused.clone();
    let service = Service::with(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => ("503 Service Unavailable", String::new()),
        _ => ("200 OK", String::new()),
    });
    let bench = watched(&service);
    Serving::start(&bench).stop();
    let told = service.until_asked(2);
    assert_eq!(told[0].body, told[1].body, "what did not arrive is sent again");
    bench.prove();
}
