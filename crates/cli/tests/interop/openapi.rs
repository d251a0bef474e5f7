//! The REST routes as a stranger tries them who has read nothing but the document: what it allows must be
//! taken, what it does not allow refused, and every answer be one that it describes.

use std::time::Duration;

use crate::foreign;
use crate::office::{Office, Who};
use crate::server::bench;
use crate::shared::installed;

const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn the_document_says_what_the_server_does() {
    let bench = bench();
    let Some(mut tool) = foreign::python("python-openapi", "schemathesis", &bench.path("home")) else {
        return;
    };
    let office = Office::open(&bench);
    let settings = installed::root().join("tests/interop/schemathesis.toml");
    tool.arg("--config-file").arg(settings).arg("run");
    tool.arg(format!("http://{}/api/v1/openapi.json", office.address()));
    tool.arg("--header")
        .arg(format!("Authorization: Bearer {}", office.token("operator")));
    tool.args([
        "--max-examples",
        "15",
        "--request-timeout",
        "60",
        "--no-color",
        "--generation-database",
        "none",
    ]);
    println!("{}", foreign::run(&mut tool, PATIENCE).ok());
    office.get(Who::Role("viewer"), "/audit/verify").ok();
    office.close();
}
