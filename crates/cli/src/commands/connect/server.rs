//! What a client is to start, or where it finds what runs already.
//!
//! A client starts the server in its own surroundings, often with little of the shell's environment.
//! So whatever chose the configuration here goes along: as absolute paths, and as the variables that
//! are policy. Secrets never do.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;

use crate::cli::Connect;
use crate::config::{Flags, Surroundings};
use crate::start::{BadUsage, Started};
use crate::whereabouts;

/// The variable in which a client finds its token.
pub(super) const TOKEN_VARIABLE: &str = "COUNTERSIGN_TOKEN";

/// Variables that decide what the server permits, or where it looks for that and keeps what it needs. Codex, for one, hands on
/// `HOME`, `PATH` and little else, and a server without these would follow another policy.
const CARRIED: &[&str] = &[
    "ALLOWED_COMMANDS",
    "ALLOWED_CWD_ROOTS",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "COUNTERSIGN_CACHE_DIR",
];

/// Variables that may hold a password: the client has to be given them in another way.
const SECRET: &[&str] = &["COUNTERSIGN_DATABASE", "COUNTERSIGN_CALLBACK_TOKEN"];

pub(super) enum Server {
    Started {
        command: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        /// Set here, and not in the entry.
        left_out: Vec<&'static str>,
    },
    Running {
        url: String,
        sends_token: bool,
    },
}

impl Server {
    pub(super) fn of(flags: &Flags, asked: &Connect, surroundings: &Surroundings) -> anyhow::Result<Self> {
        if !asked.http && asked.url.is_none() {
            for (is_given, flag) in [(asked.no_token, "--no-token"), (asked.with_token, "--with-token")] {
                if is_given {
                    return Err(BadUsage(format!("`{flag}` goes with `--http`")).into());
                }
            }
            return Self::started(flags, surroundings);
        }
        let mut needs_token = true;
        let url = match &asked.url {
            Some(url) => checked(url)?,
            None => {
                let settings = Started::load(flags)?.settings;
                let is_local = settings
                    .listen
                    .parse::<SocketAddr>()
                    .is_ok_and(|it| it.ip().is_loopback());
                needs_token = !(is_local && settings.anonymous_agents);
                // One that runs says itself where it is, which flags may have chosen.
                let running = whereabouts::find(&settings.state_dir);
                let address = running.unwrap_or_else(|| {
                    let scheme = if settings.tls.is_some() { "https" } else { "http" };
                    format!("{scheme}://{}", reachable(&settings.listen))
                });
                format!("{address}/mcp")
            }
        };
        Ok(Self::Running {
            url,
            sends_token: asked.with_token || needs_token && !asked.no_token,
        })
    }

    fn started(flags: &Flags, surroundings: &Surroundings) -> anyhow::Result<Self> {
        let chosen = |flag: &Option<PathBuf>, variable: &str| {
            let path = flag
                .clone()
                .or_else(|| surroundings.variable(variable).map(PathBuf::from));
            path.map(|path| surroundings.current_dir.join(path))
        };
        let mut args = Vec::new();
        if let Some(file) = chosen(&flags.config, "COUNTERSIGN_CONFIG") {
            if !file.is_file() {
                return Err(BadUsage(format!(
                    "`{}` is not a file; the server would not start",
                    file.display()
                ))
                .into());
            }
            args.extend(["--config".to_owned(), text(&file)?]);
        }
        if let Some(dir) = chosen(&flags.state_dir, "COUNTERSIGN_STATE_DIR") {
            args.extend(["--state-dir".to_owned(), text(&dir)?]);
        }
        args.push("stdio".to_owned());
        let carried = CARRIED.iter().filter_map(|name| {
            let value = surroundings.variables.get(*name)?;
            Some(((*name).to_owned(), value.clone()))
        });
        let secret = SECRET
            .iter()
            .filter(|name| surroundings.variable(name).is_some())
            .copied();
        Ok(Self::Started {
            command: text(&this_binary(surroundings)?)?,
            args,
            env: carried.collect(),
            left_out: secret.collect(),
        })
    }
}

/// This program as it was called: a link in a `bin` directory outlives the version it points to.
fn this_binary(surroundings: &Surroundings) -> anyhow::Result<PathBuf> {
    let real = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .context("cannot tell where this program is")?;
    let typed = std::env::args_os().next().unwrap_or_default();
    let found = called(&typed, surroundings).filter(|path| path.canonicalize().is_ok_and(|path| path == real));
    Ok(found.unwrap_or(real))
}

/// The absolute path of what was typed, as a shell would find it, unless it would read badly.
fn called(typed: &OsString, surroundings: &Surroundings) -> Option<PathBuf> {
    let typed = Path::new(typed);
    if typed.components().count() > 1 {
        let climbs = typed.components().any(|part| part == Component::ParentDir);
        return std::path::absolute(typed).ok().filter(|_| !climbs);
    }
    let dirs = surroundings.variable("PATH")?.split(':').map(Path::new);
    let mut dirs = dirs.filter(|dir| dir.is_absolute());
    dirs.find_map(|dir| Some(dir.join(typed)).filter(|path| path.is_file()))
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("`{}` is not UTF-8; no client's file can name it", path.display()))
}

/// Where a server that listens there is reached from the same machine.
fn reachable(listen: &str) -> String {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()).to_string()
        }
        Ok(_) | Err(_) => listen.to_owned(),
    }
}

fn checked(url: &str) -> Result<String, BadUsage> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let plain = url
        .chars()
        .all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '<' | '>' | '$'));
    let problem = match host {
        Some(host) if plain && !host.is_empty() && !host.starts_with(':') => {
            if !host.contains('@') {
                return Ok(url.to_owned());
            }
            "must not carry a name or password"
        }
        _ => "is not an address such as `http://127.0.0.1:7420/mcp`",
    };
    Err(BadUsage(format!("`{url}` {problem}")))
}

/// Whether what is sent to this address can be read on the way.
pub(super) fn is_readable_on_the_way(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !loopback && host != "localhost"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_everywhere_is_reached_on_loopback() {
        assert_eq!(reachable("127.0.0.1:7420"), "127.0.0.1:7420");
        assert_eq!(reachable("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(reachable("[::]:80"), "127.0.0.1:80");
        assert_eq!(reachable("[::1]:80"), "[::1]:80");
        assert_eq!(reachable("localhost:80"), "localhost:80");
    }

    #[test]
    fn only_addresses_of_servers_are_taken() {
        for good in [
            "http://localhost/mcp",
            "https://example.org:8443/a?b=c",
            "http://[::1]:7420/mcp",
        ] {
            assert_eq!(checked(good).unwrap(), good);
        }
        for bad in [
            "",
            "localhost:7420",
            "ftp://example.org",
            "http://",
            "http:///mcp",
            "http://:7420/mcp",
            "http://a b/",
            "http://a/\n",
            "http://ana:secret@example.org/mcp",
            "http://${HOST}/mcp",
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_http_is_private_only_on_this_machine() {
        for private in [
            "http://127.0.0.1:1/mcp",
            "http://localhost/mcp",
            "http://[::1]:1/",
            "https://example.org/",
        ] {
            assert!(!is_readable_on_the_way(private), "{private}");
        }
        for open in [
            "http://example.org/mcp",
            "http://10.0.0.1:7420/mcp",
            "http://[fe80::1]/",
            "http://localhost.example/",
        ] {
            assert!(is_readable_on_the_way(open), "{open}");
        }
    }
}
