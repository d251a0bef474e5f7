//! Where the database is and how safe the way there must be, read from what an operator wrote.
//!
//! `sslmode=require` and `verify-full` mean the same here: the server's certificate must be one that this machine, or the
//! file in `sslrootcert`, vouches for, under the name in the address. Encryption towards whoever answers would keep out
//! nobody who can stand in between, so it is not offered. Nothing that an address says may hold is repeated in an error:
//! it may be a password.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::{Tls, TlsError};
use crate::{Durability, Options};

/// After so long without a word the system looks whether the other end is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// A database that can be connected to.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("the address of a database begins with `postgres://`, as in `postgres://USER@HOST/NAME`")]
    Scheme,
    #[error("the address of the database cannot be read")]
    Malformed(#[source] tokio_postgres::Error),
    #[error("`sslmode` is one of `disable`, `prefer`, `require` and `verify-full`")]
    Mode,
    #[error("`sslrootcert` is good for nothing without `sslmode=require` or `verify-full`; add one of them")]
    RootsUnused,
    #[error("a socket and hosts in one address cannot be encrypted alike; name sockets alone, or leave `sslmode` out")]
    MixedHosts,
}

/// What an address says.
struct Written {
    config: Config,
    roots: Option<PathBuf>,
}

/// Whether an address can be understood; nothing is connected.
pub fn check(url: &str) -> Result<(), AddressError> {
    read(url).map(drop)
}

/// Whether others could read along, or answer in the database's place: another machine is spoken to, and no certificate
/// is asked for.
pub fn is_open_to_others(url: &str) -> bool {
    let Ok(Written { config, .. }) = read(url) else {
        return false;
    };
    let is_elsewhere = |host: &Host| match host {
        Host::Tcp(name) => name != "localhost" && !name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        Host::Unix(_) => false,
    };
    config.get_ssl_mode() != SslMode::Require && config.get_hosts().iter().any(is_elsewhere)
}

impl Address {
    pub(super) fn of(url: &str, options: &Options) -> Result<Self, super::site::OpenError> {
        let Written { mut config, roots } = read(url)?;
        configure(&mut config, options);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => Tls::none(),
            _ => Tls::trusting(roots.as_deref())?,
        };
        Ok(Self { config, tls })
    }

    /// Which database that is, without what must not be told.
    pub(super) fn place(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let name = self.config.get_dbname().or(self.config.get_user());
        format!("the database `{}` at `{hosts}`", name.unwrap_or_default())
    }
}

fn read(url: &str) -> Result<Written, AddressError> {
    if !["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Err(AddressError::Scheme);
    }
    let (place, options) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut roots, mut others) = (None, None, Vec::new());
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(PathBuf::from(decoded(value))),
            _ => others.push(option),
        }
    }
    let mut config: Config = format!("{place}?{}", others.join("&"))
        .parse()
        .map_err(AddressError::Malformed)?;
    let mode = match mode {
        None | Some("disable") => SslMode::Disable,
        Some("prefer") => SslMode::Prefer,
        Some("require" | "verify-full") => SslMode::Require,
        Some(_) => return Err(AddressError::Mode),
    };
    if roots.is_some() && mode != SslMode::Require {
        return Err(AddressError::RootsUnused);
    }
    // Nobody listens on a socket but the machine itself, and no certificate has a socket's name.
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    let sockets = config.get_hosts().iter().filter(|host| is_socket(host)).count();
    config.ssl_mode(match sockets {
        0 => mode,
        all if all == config.get_hosts().len() => SslMode::Disable,
        _ if mode == SslMode::Require => return Err(AddressError::MixedHosts),
        _ => SslMode::Disable,
    });
    Ok(Written { config, roots })
}

fn configure(config: &mut Config, options: &Options) {
    let synchronous = match options.durability {
        Durability::Power => "on",
        Durability::Process => "off",
    };
    let given = config
        .get_options()
        .map(|given| format!("{given} "))
        .unwrap_or_default();
    config.options(format!(
        "{given}-c lock_timeout={} -c synchronous_commit={synchronous} -c standard_conforming_strings=on",
        options.busy_timeout.as_millis(),
    ));
    if config.get_application_name().is_none() {
        config.application_name("countersign");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.busy_timeout);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
}

/// `%2F` and the like as what they stand for; what stands for nothing stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl From<TlsError> for super::site::OpenError {
    fn from(source: TlsError) -> Self {
        Self::Tls(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> Result<SslMode, String> {
        read(url)
            .map(|written| written.config.get_ssl_mode())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn encryption_is_what_the_address_asks_for_and_never_less() {
        for (url, expected) in [
            ("postgres://h/d", SslMode::Disable),
            ("postgresql://h/d?sslmode=disable", SslMode::Disable),
            ("postgres://h/d?sslmode=prefer", SslMode::Prefer),
            ("postgres://h/d?sslmode=require", SslMode::Require),
            ("postgres://h/d?connect_timeout=3&sslmode=verify-full", SslMode::Require),
            (
                "postgres://h,i/d?sslmode=require&sslrootcert=%2Fetc%2Fca.pem",
                SslMode::Require,
            ),
            ("postgres://u@%2Frun%2Fpg/d?sslmode=require", SslMode::Disable),
        ] {
            assert_eq!(mode(url), Ok(expected), "{url}");
        }
        let written = read("postgres://h/d?sslmode=require&sslrootcert=%2Fetc%2Fca.pem").unwrap();
        assert_eq!(written.roots, Some(PathBuf::from("/etc/ca.pem")));
    }

    #[test]
    fn only_an_unproved_way_to_another_machine_is_open_to_others() {
        for (url, open) in [
            ("postgres://db.internal/d", true),
            ("postgres://10.0.0.1/d?sslmode=prefer", true),
            ("postgres://localhost,db.internal/d?sslmode=disable", true),
            ("postgres://db.internal/d?sslmode=verify-full", false),
            ("postgres://localhost/d", false),
            ("postgres://127.0.0.1:5433/d", false),
            ("postgres://[::1]/d", false),
            ("postgres://u@%2Frun%2Fpg/d", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_open_to_others(url), open, "{url}");
        }
    }

    #[test]
    fn an_address_that_is_not_understood_is_refused_without_repeating_it() {
        for url in [
            "mysql://u:hush@h/d",
            "host=h password=hush",
            "record.db",
            "",
            "postgres://u:hush@h:port/d",
            "postgres://u:hush@h/d?sslmode=verify-ca",
            "postgres://u:hush@h/d?sslmode=allow",
            "postgres://u:hush@h/d?sslrootcert=/ca.pem",
            "postgres://u:hush@h/d?sslmode=prefer&sslrootcert=/ca.pem",
            "postgres://u:hush@h,%2Frun/d?sslmode=require",
            "postgres://u:hush@h/d?sslcert=/client.pem",
        ] {
            let error = mode(url).unwrap_err();
            assert!(!error.contains("hush"), "{url}: {error}");
        }
    }
}
