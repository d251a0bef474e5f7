//! The same over TLS. The certificate in `tests/data` is for `localhost`, and nobody trusts it but this test.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_server::http::{Tls, TlsError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::fake::Fake;
use crate::web::{self, Ask, Client, Web, handshake};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A client that trusts this certificate and no other.
async fn trusting(web: &Web, certificate: &str) -> io::Result<Client<TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(data(certificate)).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let plain = TcpStream::connect(web.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let private = TlsConnector::from(Arc::new(config)).connect(name, plain).await?;
    Ok(Client::new(private))
}

#[tokio::test]
async fn a_certificate_makes_the_listener_private() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.tls = Some(Tls::load(&data("cert.pem"), &data("key.pem")).unwrap());
    let web = Web::with(fake, options).await;
    let mut client = trusting(&web, "cert.pem").await.unwrap();
    let reply = client.ask(Ask::post(handshake("2025-11-25"))).await;
    assert_eq!(reply.status, 200);
    let told = client.ask(Ask::new("GET", "/.well-known/mcp")).await.json();
    assert_eq!(told["transports"][0]["url"], "https://localhost/mcp");
    assert_eq!(client.ask(Ask::new("GET", "/healthz")).await.status, 200);
}

#[tokio::test]
async fn on_this_machine_agents_alone_are_served_without_tls() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.tls = Some(Tls::load(&data("cert.pem"), &data("key.pem")).unwrap());
    let web = Web::with(fake, options).await;
    let mut agent = web.connect().await;
    assert_eq!(agent.ask(Ask::post(handshake("2025-11-25"))).await.status, 200);
    for path in ["/", "/healthz", "/sse", "/api/v1/approvals", "/metrics"] {
        let mut plain = web.connect().await;
        let refused = plain.ask(Ask::new("GET", path)).await;
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.body.contains("https://"), "{path}: {}", refused.body);
    }
    // Others are served meanwhile.
    let mut client = trusting(&web, "cert.pem").await.unwrap();
    assert_eq!(client.ask(Ask::new("GET", "/healthz")).await.status, 200);
}

#[tokio::test]
async fn a_certificate_that_was_replaced_serves_new_connections_and_a_bad_one_changes_nothing() {
    let there = tempfile::tempdir().unwrap();
    let (cert, key) = (there.path().join("cert.pem"), there.path().join("key.pem"));
    let put = |from: [&str; 2]| {
        std::fs::copy(data(from[0]), &cert).unwrap();
        std::fs::copy(data(from[1]), &key).unwrap();
    };
    put(["cert.pem", "key.pem"]);
    let tls = Tls::load(&cert, &key).unwrap();
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.tls = Some(tls.clone());
    let web = Web::with(fake, options).await;
    let healthy = Ask::new("GET", "/healthz");
    let mut early = trusting(&web, "cert.pem").await.unwrap();
    // Half of a replacement is no replacement.
    put(["next-cert.pem", "key.pem"]);
    assert!(matches!(tls.reload(), Err(TlsError::Unusable { .. })));
    std::fs::write(&cert, "").unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::NoCertificate { .. })));
    assert!(trusting(&web, "cert.pem").await.is_ok());
    put(["next-cert.pem", "next-key.pem"]);
    tls.reload().unwrap();
    assert!(trusting(&web, "cert.pem").await.is_err());
    let mut late = trusting(&web, "next-cert.pem").await.unwrap();
    assert_eq!(late.ask(healthy.clone()).await.status, 200);
    assert_eq!(early.ask(healthy).await.status, 200);
}

#[test]
fn a_certificate_that_cannot_be_used_says_why() {
    let there = tempfile::tempdir().unwrap();
    let empty = there.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let (cert, key) = (data("cert.pem"), data("key.pem"));
    let missing = there.path().join("missing.pem");
    let load = |cert: &Path, key: &Path| Tls::load(cert, key).err().expect("not usable");
    assert!(matches!(load(&missing, &key), TlsError::Read { path, .. } if path == missing));
    assert!(matches!(load(&cert, &missing), TlsError::Read { path, .. } if path == missing));
    assert!(matches!(load(&empty, &key), TlsError::NoCertificate { path } if path == empty));
    assert!(matches!(load(&cert, &cert), TlsError::Parse { path, .. } if path == cert));
}
