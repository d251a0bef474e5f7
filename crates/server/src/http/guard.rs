//! Keeps web pages away.
//!
//! A page in the user's browser can reach loopback ports, by a name that its own DNS points there or
//! by a plain cross-site request. Browsers always say which name and which site: on a loopback listener
//! requests that name anything but this machine are refused. Ports are not compared there, since a
//! forwarded port is the user's own doing. On other listeners a page must come from the very address
//! that it speaks to.
//!
//! Some requests of a page name no site in `Origin`: an image, a stylesheet, a `no-cors` fetch. For those
//! the browser says in `Sec-Fetch-Site` that they cross sites. A link to one of our pages may be followed
//! from anywhere; a stream or a message is no page.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

const FOREIGN: &str = "requests from pages of other sites are refused";

/// Where we listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Loopback,
    Elsewhere,
}

pub(super) fn check(place: Place, uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
    let authority = uri.authority().map(|authority| authority.as_str());
    if crosses_sites(uri, headers) {
        return Err(FOREIGN);
    }
    match place {
        Place::Loopback => loopback(authority, headers),
        Place::Elsewhere => same_site(authority, headers),
    }
}

/// Whether the browser says that another site's page sends this, where `Origin` does not tell.
fn crosses_sites(uri: &Uri, headers: &HeaderMap) -> bool {
    let says = |name: &str, word: &str| {
        headers
            .get_all(name)
            .iter()
            .any(|value| value.as_bytes() == word.as_bytes())
    };
    let follows_link = says("sec-fetch-mode", "navigate") && !speaks_rpc(uri.path());
    says("sec-fetch-site", "cross-site") && !headers.contains_key(header::ORIGIN) && !follows_link
}

/// Whether programs rather than browsers come to an address.
pub(super) fn speaks_rpc(path: &str) -> bool {
    matches!(path, "/mcp" | "/sse" | "/messages")
}

fn same_site(authority: Option<&str>, headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let Some(host) = host.filter(|_| hosts.next().is_none()) else {
        return Err("a request names exactly one `Host`");
    };
    let ours = |origin: &str| {
        let site = origin.split_once("://").map(|(_, site)| site);
        site.is_some_and(|site| site.eq_ignore_ascii_case(host))
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if origins.any(|origin| !origin.to_str().is_ok_and(ours)) {
        return Err(FOREIGN);
    }
    if authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(host)) {
        return Err("`Host` and the address of the request differ");
    }
    Ok(())
}

fn loopback(authority: Option<&str>, headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let named = [authority, host];
    let ours = named.iter().flatten().all(|name| is_this_machine(name));
    if host.is_none() || hosts.next().is_some() || !ours {
        return Err("this listener answers only to `localhost` and loopback addresses in `Host`");
    }
    let foreign = |origin: &str| !origin.split_once("://").is_some_and(|(_, host)| is_this_machine(host));
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if origins.any(|origin| origin.to_str().map_or(true, foreign)) {
        return Err(FOREIGN);
    }
    Ok(())
}

/// Whether `host` or `host:port` means this machine, whatever DNS says.
fn is_this_machine(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((host, rest)) => (host, rest),
            None => return false,
        },
        None => match authority.find(':') {
            Some(colon) => authority.split_at(colon),
            None => (authority, ""),
        },
    };
    let port_is_sane = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    let loopback = if authority.starts_with('[') {
        host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
    } else {
        host.eq_ignore_ascii_case("localhost") || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    };
    port_is_sane && loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_pass() {
        for (name, ours) in [
            ("localhost", true),
            ("LOCALHOST:7420", true),
            ("127.0.0.1", true),
            ("127.0.0.1:7420", true),
            ("127.9.9.9:1", true),
            ("[::1]", true),
            ("[::1]:7420", true),
            ("", false),
            ("example.com", false),
            ("localhost.example.com", false),
            ("localhost:7420.example.com", false),
            ("127.0.0.1.example.com", false),
            ("127.0.0.1:7420@example.com", false),
            ("user@localhost", false),
            ("0.0.0.0", false),
            ("[::]", false),
            ("::1", false),
            ("[::1", false),
            ("[::1]x", false),
            ("[127.0.0.1]", false),
            ("192.168.1.1", false),
        ] {
            assert_eq!(is_this_machine(name), ours, "{name}");
        }
    }
}
