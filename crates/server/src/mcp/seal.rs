//! What a modern client carries for us between two rounds, as `requestState`, and may do with what it likes.
//!
//! A [`Seal`] binds each state by HMAC to the caller, to the method and parameters it was given for, and to
//! a time; and it knows which states are out, so that each comes back once. A state it does not know is
//! refused, whoever made it: when too many are out the oldest is forgotten, and its client begins anew.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::CredentialId;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;

use super::memory::{self, Digest};
use crate::limits::{REQUEST_STATE_BYTES_MAX, REQUEST_STATE_TTL, REQUEST_STATES_MAX, REQUEST_STATES_MAX_EACH};

/// Parameters that a later round adds to the request; the rest must stay the same.
const OF_THE_ROUND: [&str; 3] = ["_meta", "inputResponses", "requestState"];
const FORMAT: &str = "2";

/// What a state is good for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    caller: CredentialId,
    digest: Digest,
}

impl Bound {
    pub(crate) fn to(caller: &CredentialId, method: &str, params: &Map<String, Value>) -> Self {
        Self {
            caller: caller.clone(),
            digest: memory::digest_without(method, params, &OF_THE_ROUND),
        }
    }
}

/// What states are signed with. Servers of one state directory share a key, so that a client may come back
/// to the next one.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

impl SealKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// One that ends with this process, and every state with it.
    pub fn of_this_process() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has random bytes");
        Self(key)
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SealKey(..)")
    }
}

/// Signs states and takes them back. What this process gave out comes back once. Of what another one with
/// the same key gave out only the states that came here are known, and none of those comes twice.
pub(crate) struct Seal {
    key: SealKey,
    /// Tells the states of this process from those of others.
    born: u64,
    clock: Clock,
    ttl: Duration,
    out: Mutex<Out>,
}

/// States that have not come back.
#[derive(Default)]
struct Out {
    /// By number, with the caller they were given to.
    waiting: HashMap<u64, CredentialId>,
    /// The numbers of each caller and of all, oldest first; numbers that came back are skipped.
    of_caller: HashMap<CredentialId, VecDeque<u64>>,
    order: VecDeque<u64>,
    last: u64,
    /// States of other processes that came here, and when they expire.
    others: HashMap<(u64, u64), Timestamp>,
}

impl Seal {
    pub(crate) fn new(key: SealKey, clock: Clock) -> Self {
        let mut born = [0; 8];
        getrandom::fill(&mut born).expect("the system has random bytes");
        Self {
            key,
            born: u64::from_le_bytes(born),
            clock,
            ttl: REQUEST_STATE_TTL,
            out: Mutex::default(),
        }
    }

    /// Makes the state that holds `content` until the same request comes again.
    pub(crate) fn issue(&self, bound: &Bound, content: &Value) -> Result<String, Refusal> {
        self.issue_for(bound, content, self.ttl)
    }

    /// The same, for as long as said.
    pub(crate) fn issue_for(&self, bound: &Bound, content: &Value, ttl: Duration) -> Result<String, Refusal> {
        let content = content.to_string();
        if content.len() > REQUEST_STATE_BYTES_MAX {
            let message = format!("what must be remembered is longer than {REQUEST_STATE_BYTES_MAX} bytes");
            return Err(Refusal::new(ErrorCode::LimitExceeded, message));
        }
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let expires = self.clock.now().as_millis().saturating_add(ttl);
        let number = self.out().send(&bound.caller);
        let name = Name {
            born: self.born,
            number,
            expires,
        };
        let mac = hex(&self.mac(bound, &name, &content).finalize().into_bytes());
        Ok(format!("{FORMAT}.{}.{number}.{expires}.{mac}.{content}", self.born))
    }

    /// Takes a state back, once.
    pub(crate) fn redeem(&self, bound: &Bound, state: &str) -> Result<Value, Refusal> {
        let (name, mac, content) = read(state).ok_or_else(refused)?;
        let expected = self.mac(bound, &name, content);
        // Compares in constant time, and before anything else is believed.
        expected.verify_slice(&mac).map_err(|_| refused())?;
        let (now, expires) = (self.clock.now(), Timestamp::from_millis(name.expires));
        let came_back = if name.born == self.born {
            self.out().take(name.number)
        } else {
            expires > now && self.out().take_over(&name, now)
        };
        if !came_back || expires <= now {
            return Err(refused());
        }
        serde_json::from_str(content).map_err(|_| refused())
    }

    /// What a request is known again by. It goes into the record, where nobody shall find out by trying what was hidden.
    pub(crate) fn known_by(&self, content: &Digest) -> Digest {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key.0).expect("a MAC takes keys of any length");
        mac.update(b"countersign request ");
        mac.update(content);
        mac.finalize().into_bytes().into()
    }

    fn mac(&self, bound: &Bound, name: &Name, content: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key.0).expect("a MAC takes keys of any length");
        mac.update(b"countersign request state ");
        mac.update(FORMAT.as_bytes());
        mac.update(&name.born.to_le_bytes());
        mac.update(&name.number.to_le_bytes());
        mac.update(&name.expires.to_le_bytes());
        mac.update(&bound.digest);
        let caller = bound.caller.as_str();
        mac.update(&(caller.len() as u64).to_le_bytes());
        mac.update(caller.as_bytes());
        mac.update(content.as_bytes());
        mac
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn send(&mut self, caller: &CredentialId) -> u64 {
        self.last += 1;
        let number = self.last;
        self.waiting.insert(number, caller.clone());
        self.order.push_back(number);
        let own = self.of_caller.entry(caller.clone()).or_default();
        own.push_back(number);
        if own.len() > REQUEST_STATES_MAX_EACH
            && let Some(oldest) = own.pop_front()
        {
            self.waiting.remove(&oldest);
        }
        while self.waiting.len() > REQUEST_STATES_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.take(oldest);
        }
        // Numbers that came back make nobody else give way, and do not gather either.
        if self.order.len() > 2 * REQUEST_STATES_MAX {
            self.order.retain(|number| self.waiting.contains_key(number));
        }
        number
    }

    /// True if this state of another process did not come here before. When too many did, none is taken until
    /// some have expired.
    fn take_over(&mut self, name: &Name, now: Timestamp) -> bool {
        if self.others.len() >= REQUEST_STATES_MAX {
            self.others.retain(|_, expires| *expires > now);
        }
        let key = (name.born, name.number);
        let is_new = self.others.len() < REQUEST_STATES_MAX && !self.others.contains_key(&key);
        if is_new {
            self.others.insert(key, Timestamp::from_millis(name.expires));
        }
        is_new
    }

    /// True if the state was out.
    fn take(&mut self, number: u64) -> bool {
        let Some(caller) = self.waiting.remove(&number) else {
            return false;
        };
        if let Some(own) = self.of_caller.get_mut(&caller) {
            own.retain(|other| *other != number);
            if own.is_empty() {
                self.of_caller.remove(&caller);
            }
        }
        true
    }
}

/// One sentence for all that can be wrong with a state: what exactly was wrong helps only a forger.
fn refused() -> Refusal {
    let message = "`params.requestState` is not valid for this request; make the request again without it";
    Refusal::new(ErrorCode::InvalidParams, message)
}

/// Which state it is, and until when.
struct Name {
    /// The process that gave it out.
    born: u64,
    number: u64,
    expires: i64,
}

/// Name, MAC and content of a state's text.
fn read(state: &str) -> Option<(Name, [u8; 32], &str)> {
    let mut parts = state.splitn(6, '.');
    let format = parts.next()?;
    let name = Name {
        born: parts.next()?.parse().ok()?,
        number: parts.next()?.parse().ok()?,
        expires: parts.next()?.parse().ok()?,
    };
    let mac = unhex(parts.next()?)?;
    let content = parts.next()?;
    (format == FORMAT).then_some((name, mac, content))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seal() -> Seal {
        Seal::new(SealKey([7; 32]), Clock::fixed(Timestamp::from_millis(1_000)))
    }

    fn bound(caller: &str, params: Value) -> Bound {
        Bound::to(
            &CredentialId::trusted(caller),
            "tools/call",
            params.as_object().unwrap(),
        )
    }

    fn asked() -> Bound {
        bound("ana", json!({"name": "delete", "arguments": {"file": "a"}}))
    }

    #[test]
    fn a_state_comes_back_as_it_was_and_once() {
        let seal = seal();
        let content = json!({"round": 1, "dots": "a.b.c"});
        let state = seal.issue(&asked(), &content).unwrap();
        assert_eq!(seal.redeem(&asked(), &state), Ok(content));
        assert!(seal.redeem(&asked(), &state).is_err(), "a second time");
    }

    #[test]
    fn what_the_later_round_adds_does_not_matter_and_everything_else_does() {
        let seal = seal();
        let redeem = |again: &Bound| {
            let state = seal.issue(&asked(), &json!(1)).unwrap();
            seal.redeem(again, &state).is_ok()
        };
        let round = json!({
            "arguments": {"file": "a"}, "name": "delete",
            "_meta": {"x": 1}, "inputResponses": {"k": {}}, "requestState": "s",
        });
        assert!(redeem(&bound("ana", round)));
        assert!(!redeem(&bound(
            "ben",
            json!({"name": "delete", "arguments": {"file": "a"}})
        )));
        assert!(!redeem(&bound(
            "ana",
            json!({"name": "delete", "arguments": {"file": "b"}})
        )));
        assert!(!redeem(&bound(
            "ana",
            json!({"name": "delete", "arguments": {"file": "a"}, "more": 1})
        )));
        let params = json!({"name": "delete", "arguments": {"file": "a"}});
        let other_method = Bound::to(
            &CredentialId::trusted("ana"),
            "prompts/get",
            params.as_object().unwrap(),
        );
        assert!(!redeem(&other_method));
    }

    #[test]
    fn a_foreign_attempt_does_not_use_a_state_up() {
        let seal = seal();
        let state = seal.issue(&asked(), &json!(1)).unwrap();
        assert!(seal.redeem(&bound("ben", json!({})), &state).is_err());
        assert!(seal.redeem(&asked(), &state).is_ok());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let seal = seal();
        let state = seal.issue(&asked(), &json!({"round": 1})).unwrap();
        for position in 0..state.len() {
            let mut bytes = state.clone().into_bytes();
            bytes[position] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(seal.redeem(&asked(), &changed).is_err(), "{changed}");
        }
        for changed in [
            format!("{state}-TAMPERED"),
            String::new(),
            "1.1.1..".to_owned(),
            "1".to_owned(),
        ] {
            assert!(seal.redeem(&asked(), &changed).is_err(), "{changed}");
        }
        assert!(seal.redeem(&asked(), &state).is_ok());
    }

    #[test]
    fn what_a_request_is_known_by_tells_nothing_without_the_key() {
        let content = [1; 32];
        let known = seal().known_by(&content);
        assert_eq!(known, seal().known_by(&content), "the next process knows it again");
        assert_ne!(known, seal().known_by(&[2; 32]));
        assert_ne!(known, content);
        let other = Seal::new(SealKey([8; 32]), Clock::fixed(Timestamp::from_millis(1_000)));
        assert_ne!(known, other.known_by(&content));
    }

    #[test]
    fn a_state_of_another_key_is_foreign() {
        let other = Seal::new(SealKey([8; 32]), Clock::fixed(Timestamp::from_millis(1_000)));
        let state = other.issue(&asked(), &json!(1)).unwrap();
        let seal = seal();
        seal.issue(&asked(), &json!(1)).unwrap();
        assert!(seal.redeem(&asked(), &state).is_err());
    }

    #[test]
    fn a_state_outlives_its_process_and_comes_back_once_there_too() {
        let state = seal().issue(&asked(), &json!(1)).unwrap();
        let next = seal();
        assert!(next.redeem(&bound("ben", json!({})), &state).is_err());
        assert_eq!(next.redeem(&asked(), &state), Ok(json!(1)));
        assert!(next.redeem(&asked(), &state).is_err(), "a second time");
    }

    #[test]
    fn so_many_states_of_other_processes_are_taken_and_no_more() {
        let (other, next) = (seal(), seal());
        let take = |caller: usize| {
            let bound = bound(&caller.to_string(), json!({}));
            next.redeem(&bound, &other.issue(&bound, &json!(1)).unwrap()).is_ok()
        };
        assert!((0..REQUEST_STATES_MAX).all(take));
        assert!(!take(0), "which of them came before would have to be forgotten");
    }

    #[test]
    fn a_state_expires() {
        for (ttl, fits) in [(1, true), (0, false)] {
            let seal = Seal {
                ttl: Duration::from_millis(ttl),
                ..seal()
            };
            let state = seal.issue(&asked(), &json!(1)).unwrap();
            assert_eq!(seal.redeem(&asked(), &state).is_ok(), fits);
        }
    }

    #[test]
    fn only_so_many_states_are_out() {
        let seal = seal();
        let first = seal.issue(&asked(), &json!(1)).unwrap();
        let others = seal.issue(&bound("ben", json!({})), &json!(1)).unwrap();
        for _ in 0..REQUEST_STATES_MAX_EACH {
            seal.issue(&asked(), &json!(1)).unwrap();
        }
        assert!(seal.redeem(&asked(), &first).is_err(), "it made room for newer ones");
        assert!(
            seal.redeem(&bound("ben", json!({})), &others).is_ok(),
            "one caller crowds out only itself"
        );
        for caller in 0..REQUEST_STATES_MAX {
            seal.issue(&bound(&caller.to_string(), json!({})), &json!(1)).unwrap();
        }
        let out = seal.out();
        assert_eq!(
            (out.order.len(), out.waiting.len()),
            (REQUEST_STATES_MAX, REQUEST_STATES_MAX)
        );
        assert_eq!(out.of_caller.len(), REQUEST_STATES_MAX);
    }

    #[test]
    fn a_caller_that_comes_back_again_and_again_crowds_out_nobody() {
        let seal = seal();
        let others = seal.issue(&bound("ben", json!({})), &json!(1)).unwrap();
        for _ in 0..=REQUEST_STATES_MAX {
            let state = seal.issue(&asked(), &json!(1)).unwrap();
            seal.redeem(&asked(), &state).unwrap();
        }
        for _ in 0..=REQUEST_STATES_MAX {
            seal.issue(&asked(), &json!(1)).unwrap();
        }
        let out = seal.out();
        assert!(out.order.len() <= 2 * REQUEST_STATES_MAX, "what came back takes room");
        drop(out);
        assert!(seal.redeem(&bound("ben", json!({})), &others).is_ok());
    }

    #[test]
    fn a_state_holds_only_so_much() {
        let seal = seal();
        let text = |length: usize| Value::from("x".repeat(length));
        assert!(seal.issue(&asked(), &text(REQUEST_STATE_BYTES_MAX - 2)).is_ok());
        assert!(seal.issue(&asked(), &text(REQUEST_STATE_BYTES_MAX - 1)).is_err());
    }
}
