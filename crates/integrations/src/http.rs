//! One HTTP request over a connection of its own.
//!
//! No pool, no redirects, no proxy, no retries of its own: whoever asks wants to know whether what it said
//! has left the house. Until the connection stands nothing has; behind that it may have arrived, whatever
//! became of the answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Bytes of an answer that are read.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An address that requests are sent to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    // INVARIANT: `http` or `https`, with a host, without a user.
    uri: Uri,
    /// What is asked for there: the path and what is behind it.
    target: Uri,
    secure: bool,
    host: String,
    port: u16,
}

/// Why a text is no address that requests can be sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadUrl {
    #[error("must be an http or https address")]
    NotHttp,
    #[error("must not hold a user or a password; put them into `headers`")]
    Credentials,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        // A fragment would be dropped in silence.
        let uri: Uri = text.parse().map_err(|_| BadUrl::NotHttp)?;
        if text.contains('#') {
            return Err(BadUrl::NotHttp);
        }
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(_) | None => return Err(BadUrl::NotHttp),
        };
        let authority = uri.authority().ok_or(BadUrl::NotHttp)?;
        if authority.as_str().contains('@') {
            return Err(BadUrl::Credentials);
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() {
            return Err(BadUrl::NotHttp);
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // Something behind the colon that is no port.
            None if authority.as_str().len() != authority.host().len() => return Err(BadUrl::NotHttp),
            None if secure => 443,
            None => 80,
        };
        let target = match uri.query() {
            Some(query) => format!("{}?{query}", uri.path()).parse(),
            None => uri.path().parse(),
        };
        Ok(Self {
            target: target.map_err(|_| BadUrl::NotHttp)?,
            uri,
            secure,
            host,
            port,
        })
    }

    /// Whether what is said could be read and changed on its way.
    pub fn is_open_to_others(&self) -> bool {
        let here = self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !self.secure && !here
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uri)
    }
}

/// A header that goes with every request. Its value may be a secret and is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    name: HeaderName,
    value: HeaderValue,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadHeader {
    #[error("`{0}` is no name of a header")]
    Name(String),
    #[error("`{0}` is a header that we set ourselves")]
    Ours(String),
    #[error("the value of `{0}` holds characters that no header may hold")]
    Value(String),
}

impl Header {
    pub fn new(name: &str, value: &str) -> Result<Self, BadHeader> {
        let parsed = Self::name(name)?;
        let mut value = HeaderValue::from_str(value).map_err(|_| BadHeader::Value(name.to_owned()))?;
        value.set_sensitive(true);
        Ok(Self { name: parsed, value })
    }

    /// A name that may be configured.
    pub fn name(name: &str) -> Result<HeaderName, BadHeader> {
        const OURS: [HeaderName; 5] = [
            header::HOST,
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::TRANSFER_ENCODING,
            header::CONNECTION,
        ];
        let parsed: HeaderName = name.parse().map_err(|_| BadHeader::Name(name.to_owned()))?;
        if OURS.contains(&parsed) {
            return Err(BadHeader::Ours(name.to_owned()));
        }
        Ok(parsed)
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: hidden", self.name)
    }
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub status: StatusCode,
    /// None when it was longer than we read.
    pub body: Option<Bytes>,
}

/// Why nothing came back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing has left the house; sending again says nothing twice.
    #[error("{0}")]
    Unreachable(String),
    /// It may have arrived; sending again could say it twice.
    #[error("{0}")]
    Lost(String),
}

/// Makes connections. What it takes to check certificates is loaded when the first one is checked.
#[derive(Default)]
pub struct Dialer {
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Dialer {
    /// Posts JSON and reads the answer, in `patience` altogether.
    pub async fn post(
        &self,
        endpoint: &Endpoint,
        headers: &[Header],
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Reply, SendError> {
        self.send(Method::POST, endpoint, headers, body, patience).await
    }

    /// The same by another method. Without a body nothing is said of one.
    pub async fn send(
        &self,
        method: Method,
        endpoint: &Endpoint,
        headers: &[Header],
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Reply, SendError> {
        let deadline = Instant::now() + patience;
        let late = |what: &str| format!("{what} took longer than {} ms", patience.as_millis());
        let connected = tokio::time::timeout_at(deadline, self.connect(endpoint)).await;
        let mut line = connected
            .unwrap_or_else(|_| Err(late("connecting")))
            .map_err(SendError::Unreachable)?;
        let request = request(method, endpoint, headers, body);
        let exchanged = tokio::time::timeout_at(deadline, line.exchange(request)).await;
        exchanged
            .unwrap_or_else(|_| Err(late("the answer")))
            .map_err(SendError::Lost)
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Line, String> {
        let Endpoint { host, port, .. } = endpoint;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| format!("cannot connect to {host}:{port}: {error}"))?;
        if !endpoint.secure {
            return Line::over(stream).await;
        }
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("`{host}` is no name of a server"))?;
        let tls = self.tls.get_or_try_init(certificates).await?.clone();
        let stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(|error| format!("no secure connection to {host}:{port}: {error}"))?;
        Line::over(stream).await
    }
}

fn request(method: Method, endpoint: &Endpoint, headers: &[Header], body: Vec<u8>) -> Request<Full<Bytes>> {
    let has_body = !body.is_empty();
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = endpoint.target.clone();
    let authority = endpoint.uri.authority().map_or("", |authority| authority.as_str());
    let fields = request.headers_mut();
    let host = HeaderValue::from_str(authority).expect("an authority has only characters of a header");
    fields.insert(header::HOST, host);
    let json = HeaderValue::from_static("application/json");
    if has_body {
        fields.insert(header::CONTENT_TYPE, json.clone());
    }
    fields.insert(header::ACCEPT, json);
    fields.insert(header::USER_AGENT, HeaderValue::from_static("countersign"));
    for Header { name, value } in headers {
        fields.insert(name, value.clone());
    }
    request
}

/// A connection that carries one request.
struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Line {
    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, String> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // What goes wrong with the connection goes wrong with the request, which says so.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, driver })
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        let cut = |error: &dyn fmt::Display| format!("the connection ended without an answer: {error}");
        let response = self.sender.send_request(request).await.map_err(|error| cut(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = match body.collect().await {
            Ok(collected) => Some(collected.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
            Err(error) => return Err(cut(&error)),
        };
        Ok(Reply { status, body })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The authorities that this machine trusts. Reading them may take a while, so a thread of its own does.
pub(crate) async fn certificates() -> Result<Arc<ClientConfig>, String> {
    let loaded = tokio::task::spawn_blocking(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let missing = "this machine has no certificate authorities to check servers by; install `ca-certificates`";
            return Err(missing.to_owned());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    });
    loaded.await.map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_no_password() {
        for (text, expected) in [
            ("http://127.0.0.1:9000/ask", Ok((false, "127.0.0.1", 9000))),
            (
                "https://approvals.example.org",
                Ok((true, "approvals.example.org", 443)),
            ),
            ("http://[::1]:80/?a=b", Ok((false, "::1", 80))),
            ("ftp://host/", Err(BadUrl::NotHttp)),
            ("file:///etc/passwd", Err(BadUrl::NotHttp)),
            ("http:///path", Err(BadUrl::NotHttp)),
            ("http://host:99999/", Err(BadUrl::NotHttp)),
            ("http://host:/", Err(BadUrl::NotHttp)),
            ("http://ho st/", Err(BadUrl::NotHttp)),
            ("http://host/#part", Err(BadUrl::NotHttp)),
            ("host:80", Err(BadUrl::NotHttp)),
            ("https://user:secret@host/", Err(BadUrl::Credentials)),
        ] {
            let found = Endpoint::parse(text);
            let found = found.as_ref().map(|it| (it.secure, it.host.as_str(), it.port));
            assert_eq!(found, expected.as_ref().copied(), "{text}");
        }
    }

    #[test]
    fn an_address_without_a_path_is_asked_at_its_root() {
        for (text, target) in [
            ("http://host", "/"),
            ("http://host/", "/"),
            ("http://host?a=b", "/?a=b"),
            ("http://host/path?a=b", "/path?a=b"),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            let request = request(Method::POST, &endpoint, &[], Vec::new());
            assert_eq!(request.uri().to_string(), target, "{text}");
        }
    }

    #[test]
    fn only_plain_http_beyond_this_machine_is_open_to_others() {
        for (text, open) in [
            ("http://127.0.0.1:1/", false),
            ("http://localhost/", false),
            ("http://[::1]/", false),
            ("http://10.0.0.1/", true),
            ("http://localhost.example.org/", true),
            ("https://example.org/", false),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().is_open_to_others(), open, "{text}");
        }
    }

    #[test]
    fn a_header_never_prints_its_value() {
        let header = Header::new("Authorization", "Bearer s3cret").unwrap();
        assert_eq!(format!("{header:?}"), "authorization: hidden");
        assert!(matches!(Header::new("Host", "x"), Err(BadHeader::Ours(_))));
        assert!(matches!(Header::new("a b", "x"), Err(BadHeader::Name(_))));
        let bad = Header::new("X-Key", "a\r\nEvil: s3cret").unwrap_err();
        assert!(!bad.to_string().contains("s3cret"), "{bad}");
    }
}
