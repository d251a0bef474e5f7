//! The same over TLS. The certificate in `tests/data` is for `localhost`, and nobody trusts it but this test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_server::http::{Tls, TlsError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::fake::Fake;
use crate::web::{self, Ask, Client, Web, handshake};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[tokio::test]
async fn a_certificate_makes_the_listener_private() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.tls = Some(Tls::load(&data("cert.pem"), &data("key.pem")).unwrap());
    let web = Web::with(fake, options).await;
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(data("cert.pem")).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let plain = TcpStream::connect(web.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let private = TlsConnector::from(Arc::new(config)).connect(name, plain).await.unwrap();
    let mut client = Client::new(private);
    let reply = client.ask(Ask::post(handshake("2025-11-25"))).await;
    assert_eq!(reply.status, 200);
    let told = client.ask(Ask::new("GET", "/.well-known/mcp")).await.json();
    assert_eq!(told["transports"][0]["url"], "https://localhost/mcp");
    // Who does not speak it is turned away, and others are served.
    let mut plain = web.connect().await;
    plain.send(&Ask::new("GET", "/healthz")).await;
    drop(plain);
    assert_eq!(client.ask(Ask::new("GET", "/healthz")).await.status, 200);
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
