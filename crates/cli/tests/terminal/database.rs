//! The record on PostgreSQL, through the binary: two nodes, one database.

use serde_json::Value;

use crate::postgres::cluster;
use crate::stage::Stage;

#[test]
fn two_nodes_share_a_database_and_each_proves_all_of_it() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database().url;
    let nodes = [Stage::new(), Stage::new()];
    let looked_at = || {
        let found: Value =
            serde_json::from_str(&nodes[0].run(&["--database", &url, "doctor", "--json"]).stdout).unwrap();
        found["database"].clone()
    };
    assert_eq!(looked_at()["advice"], Value::Null, "empty, and good for a record");
    for stage in &nodes {
        let ran = stage
            .listing("ls")
            .run(&["--database", &url, "exec", "--", "rm", "one"]);
        assert_eq!(ran.code, 126, "{ran:?}");
    }
    let ran = nodes[0].run(&["--database", &url, "audit", "verify", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let proof: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&proof["ok"], proof["others"].as_array().map(Vec::len)),
        (&true.into(), Some(1))
    );
    assert_ne!(proof["public_key"], proof["others"][0]["public_key"]);
    assert_eq!(looked_at()["advice"], Value::Null);
    // Either sees what both did.
    let ran = nodes[1].run(&["--database", &url, "audit", "query", "--kind", "command", "--json"]);
    let found: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found.len(), 2, "{ran:?}");
    // What is not there is said, without the password.
    let gone = url.replace("/postgres", "/nowhere");
    let ran = nodes[0].listing("ls").run(&["--database", &gone, "exec", "--", "ls"]);
    assert_ne!(ran.code, 0);
    assert!(
        ran.stderr.contains("nowhere") && !ran.stderr.contains("countersign:countersign@"),
        "{ran:?}"
    );
}
