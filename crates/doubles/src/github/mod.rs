//! GitHub, as far as we use it: issues and pull requests with labels and comments, secrets of repositories
//! and environments that can be opened again, and deliveries with a signature.
//!
//! Every request and every answer is held against the API description that GitHub publishes, where
//! `tests/github/setup` has fetched it ([`contract`]). What goes wrong on purpose is scripted ([`faults`]).
//! The deliveries ([`deliveries`]) are GitHub's own published examples with other names in them.

pub mod contract;
pub mod deliveries;
pub mod faults;
mod routes;
mod secrets;
mod shapes;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use crate::http::{self, Request, Response};
use contract::Contract;
use faults::{Fault, Script};
use state::State;

pub use state::{Comment, LabelEvent};

/// The token that is let in, and whose it is.
pub const TOKEN: &str = "ghs_c0ntr0lT0kenThatNobodyMayRead";
pub const LOGIN: &str = "countersign-bot";

/// A GitHub of a test. It holds everybody to the contract when it goes.
pub struct GitHub {
    address: String,
    world: Arc<World>,
}

struct World {
    state: Mutex<State>,
    script: Mutex<Script>,
    asked: Mutex<Vec<Asked>>,
    contract: Option<Contract>,
    broken: Mutex<Vec<String>>,
}

/// A request and how it was answered; 0 where the connection was cut.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub body: Value,
    pub status: u16,
}

impl GitHub {
    pub fn start() -> Self {
        let world = Arc::new(World {
            state: Mutex::new(State::default()),
            script: Mutex::default(),
            asked: Mutex::default(),
            contract: Contract::installed(),
            broken: Mutex::default(),
        });
        let served = world.clone();
        let address = http::serve(move |request| served.answer(request));
        Self { address, world }
    }

    /// What `github.api_url` says.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A new issue with these labels.
    pub fn issue(&self, repository: &str, number: u64, labels: &[&str]) {
        self.state().create(repository, number, None, labels);
    }

    /// A new pull request, whose body may close an issue.
    pub fn pull_request(&self, repository: &str, number: u64, body: &str, labels: &[&str]) {
        self.state().create(repository, number, Some(body), labels);
    }

    /// What a pull request changes.
    pub fn change_files(&self, repository: &str, number: u64, files: &[&str]) {
        self.state().change_files(repository, number, files);
    }

    /// An issue is there no more.
    pub fn delete_issue(&self, repository: &str, number: u64) {
        self.state().delete(repository, number);
    }

    /// What somebody may do from now on: `admin`, `write`, `read` or `none`. Whoever is not named may write.
    pub fn permit(&self, login: &str, permission: &str) {
        let mut state = self.state();
        state.permissions.insert(login.to_owned(), permission.to_owned());
    }

    /// The labels of an issue or a pull request, in the order of their names.
    pub fn labels(&self, repository: &str, number: u64) -> Vec<String> {
        self.state().labels(repository, number)
    }

    /// What somebody else does.
    pub fn label_by(&self, login: &str, repository: &str, number: u64, add: &[&str], remove: &[&str]) {
        self.state().relabel(login, repository, number, add, remove);
    }

    pub fn comments(&self, repository: &str, number: u64) -> Vec<Comment> {
        self.state().comments(repository, number)
    }

    pub fn delete_comment(&self, id: u64) {
        self.state().delete_comment(id);
    }

    pub fn environment(&self, repository: &str, name: &str) {
        self.state().environment(repository, name);
    }

    /// A secret, opened; of the repository where no environment is named.
    pub fn secret(&self, repository: &str, environment: Option<&str>, name: &str) -> Option<Vec<u8>> {
        self.state().secret(repository, environment, name)
    }

    /// How often a secret was written.
    pub fn secret_writes(&self, repository: &str, environment: Option<&str>, name: &str) -> usize {
        self.state().secret_writes(repository, environment, name)
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.world.asked.lock().unwrap().clone()
    }

    /// How often something was asked whose path ends so.
    pub fn count(&self, method: &str, ending: &str) -> usize {
        let of = |asked: &&Asked| asked.method == method && asked.path.ends_with(ending);
        self.asked().iter().filter(of).count()
    }

    /// What happens at the next request of this kind. Faults of one kind happen one after the other.
    pub fn next(&self, method: &str, ending: &str, fault: Fault) {
        self.world.script.lock().unwrap().add(method, ending, fault);
    }

    /// What somebody else does while the next request of this kind is on its way: behind what was read
    /// before it, and before what it does.
    pub fn meanwhile(&self, method: &str, ending: &str, act: impl FnOnce(&Self) + Send + 'static) {
        let here = Self {
            address: self.address.clone(),
            world: self.world.clone(),
        };
        let act = Box::new(move || {
            act(&here);
            // Only the one that the test holds has the last word.
            std::mem::forget(here);
        });
        self.next(method, ending, Fault::Meanwhile(act));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.world.state.lock().unwrap()
    }
}

impl World {
    fn answer(&self, request: &Request) -> Option<Response> {
        let fault = self.script.lock().unwrap().take(request);
        let response = match fault {
            None => Some(self.served(request)),
            Some(Fault::Meanwhile(act)) => {
                act();
                Some(self.served(request))
            }
            Some(Fault::Answer(response)) => Some(response),
            Some(Fault::Cut) => None,
            Some(Fault::CutBehind) => {
                self.served(request);
                None
            }
            Some(Fault::Slow(pause)) => {
                std::thread::sleep(pause);
                Some(self.served(request))
            }
            Some(Fault::SlowBehind(pause)) => {
                let answer = self.served(request);
                std::thread::sleep(pause);
                Some(answer)
            }
        };
        self.asked.lock().unwrap().push(Asked {
            method: request.method.clone(),
            path: request.path.clone(),
            body: request.json(),
            status: response.as_ref().map_or(0, |response| response.status),
        });
        response
    }

    /// Does what is asked, as GitHub would, and says so where somebody breaks the contract.
    fn served(&self, request: &Request) -> Response {
        let authorized = [format!("Bearer {TOKEN}"), format!("token {TOKEN}")];
        let sent = request.header("authorization").unwrap_or_default();
        if !authorized.iter().any(|known| known == sent) {
            return Response::new(
                401,
                json!({"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest", "status": "401"}),
            );
        }
        if request.header("user-agent").is_none() {
            self.broken
                .lock()
                .unwrap()
                .push(format!("{} {}: no User-Agent", request.method, request.path));
        }
        let response = routes::answer(&mut self.state.lock().unwrap(), request);
        if let Some(contract) = &self.contract
            && let Err(broken) = contract.check(request, &response)
        {
            self.broken.lock().unwrap().push(broken);
        }
        response
    }
}

impl Drop for GitHub {
    fn drop(&mut self) {
        let broken = self.world.broken.lock().unwrap().clone();
        if !std::thread::panicking() {
            assert!(broken.is_empty(), "GitHub's contract was broken: {broken:#?}");
        }
    }
}
