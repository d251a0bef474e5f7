//! The PostgreSQL that tests run on keeps what it promises them.

use std::path::Path;

use crate::postgres::{Cluster, cluster};

#[test]
fn every_test_has_a_database_of_its_own() {
    let Some(cluster) = cluster() else { return };
    let (one, other) = (cluster.database(), cluster.database());
    cluster.run(&one, "CREATE TABLE mine (); SELECT 1").unwrap();
    assert_eq!(cluster.run(&one, "SELECT count(*) FROM mine").unwrap(), "0");
    assert!(cluster.run(&other, "SELECT count(*) FROM mine").is_err());
    assert_eq!(cluster.run(&one, "SHOW fsync").unwrap(), "on");
}

#[test]
fn a_cluster_comes_back_after_a_crash_and_leaves_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let database = cluster.database();
    cluster.run(&database, "CREATE TABLE kept ()").unwrap();
    cluster.stop();
    assert!(cluster.run(&database, "SELECT 1").is_err());
    cluster.start_again();
    assert_eq!(cluster.run(&database, "SELECT count(*) FROM kept").unwrap(), "0");
    let place = cluster.run(&database, "SHOW data_directory").unwrap();
    drop(cluster);
    assert!(!Path::new(&place).exists());
}
