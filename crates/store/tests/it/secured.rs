//! The way to the database under TLS, against a real server with a certificate of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersign_gateway::clock::Clock;
use countersign_store::{Durability, Options, Store};
use tempfile::TempDir;

use crate::bench::{Bench, Sqlite, commit, verify};
use crate::postgres::{Cluster, Database};

/// A server that speaks TLS by the name `localhost`, and the authority that vouches for it.
struct Secured {
    cluster: Cluster,
    directory: TempDir,
}

impl Secured {
    fn start() -> Option<Self> {
        let cluster = Cluster::start()?;
        let directory = tempfile::tempdir().unwrap();
        certify(directory.path(), "localhost");
        let secured = Self { cluster, directory };
        let database = secured.cluster.database();
        let data = PathBuf::from(secured.cluster.run(&database, "SHOW data_directory").unwrap());
        // The server reads its key only from a file of its own, so it writes that itself.
        for name in ["server.crt", "server.key"] {
            let text = fs::read_to_string(secured.directory.path().join(name)).unwrap();
            let path = data.join(name);
            let sql = format!(
                "COPY (SELECT unnest(string_to_array('{text}', E'\\n'))) TO '{}'",
                path.display()
            );
            secured.cluster.run(&database, &sql).unwrap();
            assert!(Command::new("chmod").arg("600").arg(&path).status().unwrap().success());
        }
        secured.cluster.run(&database, "ALTER SYSTEM SET ssl = on").unwrap();
        secured.cluster.stop();
        secured.cluster.start_again();
        Some(secured)
    }

    fn authority(&self) -> String {
        self.directory
            .path()
            .join("ca.crt")
            .display()
            .to_string()
            .replace('/', "%2F")
    }

    fn url(&self, database: &Database, host: &str, options: &str) -> String {
        format!("{}?{options}", database.url.replace("127.0.0.1", host))
    }

    /// Connections of ours, and how many of them are encrypted.
    fn connections(&self, database: &Database) -> (u64, u64) {
        let sql = "SELECT count(*) || ' ' || count(*) FILTER (WHERE ssl) FROM pg_stat_ssl
             JOIN pg_stat_activity USING (pid) WHERE application_name = 'countersign'";
        let told = self.cluster.run(database, sql).unwrap();
        let (all, encrypted) = told.split_once(' ').unwrap();
        (all.parse().unwrap(), encrypted.parse().unwrap())
    }
}

/// Makes an authority, and a certificate for a name under it.
fn certify(directory: &Path, name: &str) {
    let script = format!(
        "set -e
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 \\
             -subj '/CN=authority' -addext basicConstraints=critical,CA:TRUE
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr \\
             -subj '/CN={name}'
         printf 'subjectAltName=DNS:{name}\\nbasicConstraints=CA:FALSE\\n' > extensions
         openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions \\
             -out server.crt"
    );
    let made = Command::new("sh")
        .arg("-c")
        .arg(script)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn open(state: &Path, url: &str) -> Result<Store, String> {
    let options = Options::new(Durability::Power, Clock::system()).on(Some(url.to_owned()));
    Store::open(state, options).map_err(|error| {
        let mut told = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            told = format!("{told}: {error}");
            cause = error.source();
        }
        told
    })
}

#[test]
fn a_record_is_kept_over_encrypted_connections_only_where_that_is_asked_for() {
    let Some(secured) = Secured::start() else { return };
    let database = secured.cluster.database();
    let authority = secured.authority();
    let state = tempfile::tempdir().unwrap();
    for mode in ["require", "verify-full"] {
        let url = secured.url(
            &database,
            "localhost",
            &format!("sslmode={mode}&sslrootcert={authority}"),
        );
        let store = open(state.path(), &url).unwrap();
        commit(&store, Bench::<Sqlite>::new().note(1)).unwrap();
        verify(&store).unwrap();
        let (all, encrypted) = secured.connections(&database);
        assert!(all > 0 && all == encrypted, "{encrypted} of {all}");
    }
    // A socket stays plain, whatever is asked for.
    let socket = format!("{}?sslmode=require", database.socket_url);
    let store = open(state.path(), &socket).unwrap();
    verify(&store).unwrap();
    assert_eq!(secured.connections(&database).1, 0);
}

#[test]
fn a_server_that_nobody_vouches_for_is_not_talked_to() {
    let Some(secured) = Secured::start() else { return };
    let database = secured.cluster.database();
    let authority = secured.authority();
    let other = tempfile::tempdir().unwrap();
    certify(other.path(), "localhost");
    let other = other.path().join("ca.crt").display().to_string();
    let state = tempfile::tempdir().unwrap();
    for (host, options) in [
        // Another name than the certificate's, another authority, and those of this machine.
        ("127.0.0.1", format!("sslmode=require&sslrootcert={authority}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}")),
        ("localhost", "sslmode=prefer".to_owned()),
    ] {
        let url = secured.url(&database, host, &options);
        let refused = open(state.path(), &url).map(drop).unwrap_err();
        assert!(!refused.contains("countersign:countersign"), "{refused}");
        assert_eq!(secured.connections(&database).0, 0, "{options}");
    }
    let missing = secured.url(&database, "localhost", "sslmode=require&sslrootcert=/nowhere.pem");
    let refused = open(state.path(), &missing).map(drop).unwrap_err();
    assert!(refused.contains("/nowhere.pem"), "{refused}");
}

#[test]
fn a_server_without_tls_is_refused_where_encryption_is_required() {
    let Some(cluster) = crate::postgres::cluster() else {
        return;
    };
    let database = cluster.database();
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path(), "localhost");
    let authority = directory.path().join("ca.crt").display().to_string();
    let state = tempfile::tempdir().unwrap();
    let required = format!("{}?sslmode=require&sslrootcert={authority}", database.url);
    let refused = open(state.path(), &required).map(drop).unwrap_err();
    assert!(refused.contains("TLS"), "{refused}");
    // Preferred is not required.
    if let Err(refused) = open(state.path(), &format!("{}?sslmode=prefer", database.url)) {
        assert!(refused.contains("certificate authorities"), "{refused}");
    }
}
