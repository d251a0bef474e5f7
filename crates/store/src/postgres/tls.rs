//! The way to the database under TLS: the server's certificate must be vouched for, for the name in the address.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, client};

/// Secures connections, where there is something to check certificates by.
#[derive(Clone)]
pub(super) struct Tls {
    config: Option<Arc<ClientConfig>>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificates in `{path}` cannot be read")]
    Roots { path: PathBuf, source: pem::Error },
    #[error("`{path}` holds no certificate that others can be checked by")]
    NoRoots { path: PathBuf },
    #[error(
        "this machine has no certificate authorities to check the database by; install `ca-certificates`, or name a file by `sslrootcert`"
    )]
    NoAuthorities,
    #[error("TLS cannot be used")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// For connections that stay plain.
    pub(super) fn none() -> Self {
        Self { config: None }
    }

    /// Trusts the authorities in this file, else those of this machine.
    pub(super) fn trusting(roots: Option<&Path>) -> Result<Self, TlsError> {
        let mut trusted = RootCertStore::empty();
        match roots {
            Some(path) => {
                let unread = |source| TlsError::Roots {
                    path: path.to_owned(),
                    source,
                };
                for certificate in CertificateDer::pem_file_iter(path).map_err(unread)? {
                    let certificate = certificate.map_err(unread)?;
                    trusted.add_parsable_certificates([certificate]);
                }
                if trusted.is_empty() {
                    let path = path.to_owned();
                    return Err(TlsError::NoRoots { path });
                }
            }
            None => {
                trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if trusted.is_empty() {
                    return Err(TlsError::NoAuthorities);
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Ok(Self {
            config: Some(Arc::new(config)),
        })
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Secured<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake {
            config: self.config.clone(),
            host: host.to_owned(),
        })
    }
}

/// Asked for on every connection, and performed on those that are not to stay plain.
pub(super) struct Handshake {
    config: Option<Arc<ClientConfig>>,
    host: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS was not asked for"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let secured = TlsConnector::from(config).connect(name, stream).await?;
            Ok(Secured(secured))
        })
    }
}

/// A connection that nobody reads along.
pub(super) struct Secured<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
