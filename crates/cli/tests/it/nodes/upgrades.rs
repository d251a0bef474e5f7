//! Nodes of different age on one database: whoever is newer brings the tables up to date, at once or not at all, and
//! whoever is older goes on until it is started again.

use std::process::Stdio;
use std::thread;

use serde_json::json;

use super::field::{A, B, Field, SERVE};
use crate::bench::Bench;
use crate::web::Web;

/// The tables as they once were.
const OLD: [&str; 5] = [
    include_str!("../../../../store/src/postgres/migrations/0001_record.sql"),
    include_str!("../../../../store/src/postgres/migrations/0002_sessions.sql"),
    include_str!("../../../../store/src/postgres/migrations/0003_approvals.sql"),
    include_str!("../../../../store/src/postgres/migrations/0004_logins.sql"),
    include_str!("../../../../store/src/postgres/migrations/0005_jobs.sql"),
];

/// Three nodes, none of them started, on a database as an older program left it.
fn field() -> Option<Field> {
    let field = Field::empty(3, Bench::configured("'true'", ""))?;
    let old = OLD.join("\n");
    field.sql(&format!(
        "BEGIN; {old}; CREATE TABLE schema_version (version BIGINT NOT NULL); INSERT INTO schema_version VALUES (5); COMMIT"
    ));
    Some(field)
}

fn works(field: &Field, node: usize, id: i64) {
    let session = field.session(node);
    let answer = field.call(
        node,
        &session,
        id,
        "execute_process",
        json!({"file": "true", "args": []}),
    );
    assert_eq!(answer["status"], "ok", "{answer}");
}

#[test]
fn nodes_that_start_together_on_older_tables_bring_them_up_to_date_once() {
    let Some(mut field) = field() else { return };
    let started: Vec<Web> = thread::scope(|scope| {
        let field = &field;
        let starting: Vec<_> = (0..3)
            .map(|node| scope.spawn(move || Web::of(field.command(node).args(SERVE))))
            .collect();
        starting.into_iter().map(|it| it.join().unwrap()).collect()
    });
    started.into_iter().for_each(Web::stop);
    assert_eq!(field.sql("SELECT count(*) FROM schema_version"), "1");
    assert!(field.count("SELECT version FROM schema_version") > 5);
    for node in 0..3 {
        field.serve(node);
        works(&field, node, 1);
    }
    field.prove();
}

#[test]
fn a_node_goes_on_while_a_newer_one_changes_the_tables_and_says_so_when_it_is_started_again() {
    let Some(mut field) = field() else { return };
    field.serve(A);
    works(&field, A, 1);
    // What a newer program does: it adds, in one transaction, and says how far it went.
    field.sql(
        "BEGIN; ALTER TABLE jobs ADD COLUMN of_tomorrow TEXT; CREATE TABLE things_of_tomorrow ();
         UPDATE schema_version SET version = version + 1; COMMIT",
    );
    works(&field, A, 2);
    let refused = field.command(B).arg("serve").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("newer program"), "{said}");
    works(&field, A, 3);
    // The newer program is taken back: the tables may stay as they are.
    field.sql("UPDATE schema_version SET version = version - 1");
    field.serve(B);
    works(&field, B, 4);
    field.prove();
}

#[test]
fn tables_that_cannot_be_brought_up_to_date_stay_as_they_were() {
    let Some(mut field) = field() else { return };
    // Somebody's own table is in the way of a later step.
    field.sql("CREATE TABLE open_acts (mine TEXT); INSERT INTO open_acts VALUES ('kept')");
    let shape = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'";
    let before = field.sql(shape);
    let refused = field.command(A).arg("serve").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("open_acts"), "{said}");
    assert_eq!(
        (field.sql(shape), field.count("SELECT version FROM schema_version")),
        (before, 5)
    );
    field.sql("ALTER TABLE open_acts RENAME TO mine");
    field.serve(A);
    works(&field, A, 1);
    assert_eq!(field.sql("SELECT mine FROM mine"), "kept");
    field.prove();
}
