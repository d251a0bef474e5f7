//! What people use beside the protocol: the REST routes and the console, and who comes to them.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, Method, header};
use countersign_gateway::approval::board::Board;
use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::reading::Records;
use countersign_gateway::delegation::desk::DelegationDesk;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::job::desk::JobDesk;
use countersign_gateway::job::news::JobNews;
use countersign_gateway::policy::explain::Explains;
use countersign_gateway::policy::standing::StandingRules;
use countersign_gateway::run::manual::ManualRuns;
use countersign_gateway::session::login::Logins;
use countersign_gateway::session::{Caller, Role};

/// The cookie that a browser's login is kept in.
pub(crate) const COOKIE: &str = "countersign_login";
/// Cookies of this name that are looked at.
const COOKIES_TRIED_MAX: usize = 8;

/// The ports behind the REST routes and the console.
#[derive(Clone)]
pub struct Office {
    pub board: Arc<Board>,
    pub records: Arc<dyn Records>,
    pub logins: Arc<dyn Logins>,
    pub rules: Arc<dyn StandingRules>,
    pub policy: Arc<dyn Explains>,
    /// Acts that services outside perform, where there are any.
    pub delegations: Option<Arc<DelegationDesk>>,
    pub jobs: Arc<JobDesk>,
    pub job_news: Arc<JobNews>,
    pub runs: ManualRuns,
}

/// Who sent a request, as far as the front door could tell. Every request that reaches a route carries one.
#[derive(Clone, Debug)]
pub(crate) enum Visitor {
    Known(Caller),
    /// With why not.
    Unknown(Refusal),
}

impl Visitor {
    /// Whoever may read the record and the questions: a person, never an agent.
    pub(crate) fn reader(&self) -> Result<&Caller, Refusal> {
        let caller = self.caller()?;
        match caller.role {
            Role::Operator | Role::Approver | Role::Viewer => Ok(caller),
            Role::Agent => Err(Refusal::new(
                ErrorCode::Forbidden,
                "an agent neither reads the record nor decides; use a token of role operator, approver or viewer",
            )),
        }
    }

    pub(crate) fn caller(&self) -> Result<&Caller, Refusal> {
        match self {
            Self::Known(caller) => Ok(caller),
            Self::Unknown(refusal) => Err(refusal.clone()),
        }
    }
}

/// The secrets in a browser's cookies of this name, as a rule one. A page of another port can put others beside it, and
/// need not be let keep its person out.
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let pairs = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    pairs
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, secret)| secret)
        .take(COOKIES_TRIED_MAX)
}

/// Whether a request comes as a browser. A token goes before its cookies.
pub(crate) fn is_of_browser(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::AUTHORIZATION) && cookies(headers).next().is_some()
}

/// Whose browser this is; none when no login in it is in force.
pub(crate) async fn logged_in(logins: &dyn Logins, headers: &HeaderMap) -> Result<Option<Caller>, RecordError> {
    for secret in cookies(headers) {
        if let Some(caller) = logins.who(secret).await? {
            return Ok(Some(caller));
        }
    }
    Ok(None)
}

/// A browser sends its cookie with whatever a page of any site makes it send. What changes something
/// must come from a page of ours, and browsers say so in a header that pages cannot set.
pub(crate) fn forged(method: &Method, headers: &HeaderMap) -> bool {
    if *method == Method::GET || *method == Method::HEAD {
        return false;
    }
    let host = only(headers, &header::HOST);
    let origin = only(headers, &header::ORIGIN);
    let from = origin.and_then(|origin| origin.split_once("://")).map(|(_, site)| site);
    host.is_none() || from != host
}

/// A header that is there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().and_then(|value| value.to_str().ok());
    value.filter(|_| values.next().is_none())
}

/// Whether a page of this machine, though none of ours, sends something that changes something and says by no token
/// who it is. A browser lets pages send bytes of no kind wherever they like; an agent is no page.
pub(crate) fn of_another_page(method: &Method, headers: &HeaderMap) -> bool {
    let is_of_page = headers.contains_key(header::ORIGIN) && !headers.contains_key(header::AUTHORIZATION);
    is_of_page && forged(method, headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (header::HeaderName::from_static(name), value.parse().unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    fn found(headers: &HeaderMap) -> Vec<&str> {
        cookies(headers).collect()
    }

    #[test]
    fn a_login_is_found_among_other_cookies() {
        let cookies = headers(&[("cookie", "a=b; countersign_login=s3; c=d")]);
        assert_eq!(found(&cookies), ["s3"]);
        assert_eq!(found(&headers(&[("cookie", "xcountersign_login=s3")])), [""; 0]);
        assert_eq!(found(&headers(&[])), [""; 0]);
        let several = headers(&[("cookie", "countersign_login=s1; countersign_login=s2")]);
        assert_eq!(found(&several), ["s1", "s2"]);
        let many = ["countersign_login=s"; 50].join("; ");
        let many = HeaderMap::from_iter([(header::COOKIE, many.parse().unwrap())]);
        assert_eq!(found(&many).len(), COOKIES_TRIED_MAX);
    }

    #[test]
    fn what_changes_something_must_come_from_our_own_page() {
        for (method, sent, expected) in [
            (Method::GET, &[("host", "localhost:7420")][..], false),
            (Method::POST, &[("host", "localhost:7420")][..], true),
            (
                Method::POST,
                &[("host", "localhost:7420"), ("origin", "http://localhost:7420")][..],
                false,
            ),
            (
                Method::POST,
                &[("host", "localhost:7420"), ("origin", "http://localhost:7421")][..],
                true,
            ),
            (
                Method::POST,
                &[("host", "localhost:7420"), ("origin", "null")][..],
                true,
            ),
            (Method::DELETE, &[("origin", "http://localhost:7420")][..], true),
            (
                Method::POST,
                &[
                    ("host", "localhost:7420"),
                    ("origin", "http://localhost:7420"),
                    ("origin", "http://localhost:3000"),
                ][..],
                true,
            ),
        ] {
            assert_eq!(forged(&method, &headers(sent)), expected, "{method} {sent:?}");
        }
    }
}
