//! The server's certificate, read at the start and again whenever the operator says that it was replaced.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// What a client needs to speak to us in private.
#[derive(Clone)]
pub struct Tls(Arc<Certificate>);

struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    /// What new connections are served with; those that are open keep what they began with.
    config: Mutex<Arc<ServerConfig>>,
}

/// Why the certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` is not a PEM file with what is needed")]
    Parse { path: PathBuf, source: pem::Error },
    #[error("`{path}` holds no certificate")]
    NoCertificate { path: PathBuf },
    #[error("the certificate in `{cert}` and the key in `{key}` cannot be used together")]
    Unusable {
        cert: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

impl Tls {
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let config = Mutex::new(read(cert, key)?);
        Ok(Self(Arc::new(Certificate {
            cert: cert.to_owned(),
            key: key.to_owned(),
            config,
        })))
    }

    /// Reads both files again, for connections that come from now on. What cannot be used changes nothing.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.0.cert, &self.0.key)?;
        *self.0.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let config = self.0.config.lock().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }
}

fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| TlsError::Read {
            path: path.to_owned(),
            source,
        })
    };
    let parse = |path: &Path, source| TlsError::Parse {
        path: path.to_owned(),
        source,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<_, _>>()
        .map_err(|source| parse(cert, source))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: cert.to_owned() });
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|source| parse(key, source))?;
    let unusable = |source| TlsError::Unusable {
        cert: cert.to_owned(),
        key: key.to_owned(),
        source,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
