//! Kubernetes, as far as we use it: Secrets in namespaces, read, deleted and written by server-side apply, with the
//! fields that each manager keeps; and what `kubectl` asks before it does the same.
//!
//! What comes in and goes out is held against the API description that Kubernetes publishes ([`contract`]); what
//! applying means is by its published rules ([`apply`]).

mod apply;
mod contract;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use apply::{Applied, Stored};
use contract::Contract;
use shapes::status;

use crate::github::faults::{Fault, Script};
use crate::http::{self, Request, Response};

/// The token that is let in.
pub const TOKEN: &str = "k8s-t0kenThatNobodyMayRead";

/// A cluster of a test. It holds everybody to the contract when it goes.
pub struct Kubernetes {
    address: String,
    world: Arc<Mutex<World>>,
}

#[derive(Default)]
struct World {
    namespaces: BTreeSet<String>,
    forbidden: BTreeSet<String>,
    secrets: BTreeMap<(String, String), Stored>,
    version: u64,
    applies: usize,
    /// Methods of what came in, answered or not.
    asked: Vec<String>,
    script: Script,
    contract: Contract,
    broken: Vec<String>,
}

impl Kubernetes {
    pub fn start() -> Self {
        let world = Arc::new(Mutex::new(World {
            contract: Contract::installed(),
            ..World::default()
        }));
        let served = world.clone();
        let address = http::serve(move |request| answer(&served, request));
        Self { address, world }
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Writes a kubeconfig that leads here.
    pub fn kubeconfig(&self, directory: &Path) -> PathBuf {
        let path = directory.join("kubeconfig.yaml");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: 'http://{}'}}}}]\n\
             users: [{{name: test, user: {{token: {TOKEN}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n",
            self.address
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn namespace(&self, name: &str) {
        self.world().namespaces.insert(name.to_owned());
    }

    /// From now on nobody may touch Secrets in this namespace.
    pub fn forbid(&self, namespace: &str) {
        self.world().forbidden.insert(namespace.to_owned());
    }

    /// The value of a key.
    pub fn secret(&self, namespace: &str, name: &str, key: &str) -> Option<Vec<u8>> {
        let world = self.world();
        let stored = world.secrets.get(&(namespace.to_owned(), name.to_owned()))?;
        STANDARD.decode(stored.datum(key)?).ok()
    }

    /// What somebody else applies.
    pub fn apply_by(&self, manager: &str, namespace: &str, name: &str, key: &str, value: &str) {
        self.world().apply_by(manager, (namespace, name), (key, value));
    }

    /// The same, at the moment when the next apply to this Secret comes in.
    pub fn apply_meanwhile(&self, manager: &str, namespace: &str, name: &str, key: &str, value: &str) {
        let words = [manager, namespace, name, key, value].map(str::to_owned);
        let (world, ending) = (self.world.clone(), format!("/{name}"));
        let act = move || {
            let [manager, namespace, name, key, value] = &words;
            world.lock().unwrap().apply_by(manager, (namespace, name), (key, value));
        };
        self.next("PATCH", &ending, Fault::Meanwhile(Box::new(act)));
    }

    /// How many applies changed or confirmed something in a Secret; making an empty one is none.
    pub fn applies(&self) -> usize {
        self.world().applies
    }

    /// How many requests of a method came in, answered or not.
    pub fn asked(&self, method: &str) -> usize {
        self.world().asked.iter().filter(|asked| *asked == method).count()
    }

    /// What happens at the next request of this kind.
    pub fn next(&self, method: &str, ending: &str, fault: Fault) {
        self.world().script.add(method, ending, fault);
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        let broken = self.world().broken.clone();
        if !std::thread::panicking() {
            assert!(broken.is_empty(), "Kubernetes' contract was broken: {broken:#?}");
        }
    }
}

fn answer(world: &Mutex<World>, request: &Request) -> Option<Response> {
    let fault = {
        let mut world = world.lock().unwrap();
        world.asked.push(request.method.clone());
        world.script.take(request)
    };
    match fault {
        None => Some(world.lock().unwrap().serve(request)),
        // Something in between answers what no API server would.
        Some(Fault::Answer(response)) if !response.body.is_object() => Some(response),
        Some(Fault::Answer(response)) => {
            let message = response.body["message"].as_str().unwrap_or("scripted").to_owned();
            Some(status(response.status, "ServiceUnavailable", &message))
        }
        Some(Fault::Cut) => None,
        Some(Fault::CutBehind) => {
            world.lock().unwrap().serve(request);
            None
        }
        Some(Fault::Slow(pause)) => {
            std::thread::sleep(pause);
            Some(world.lock().unwrap().serve(request))
        }
        Some(Fault::SlowBehind(pause)) => {
            let answer = world.lock().unwrap().serve(request);
            std::thread::sleep(pause);
            Some(answer)
        }
        Some(Fault::Meanwhile(act)) => {
            act();
            Some(world.lock().unwrap().serve(request))
        }
    }
}

impl World {
    fn apply_by(&mut self, manager: &str, (namespace, name): (&str, &str), (key, value): (&str, &str)) {
        self.version += 1;
        let stored = self.secrets.entry((namespace.to_owned(), name.to_owned())).or_default();
        stored.put(manager, key, &STANDARD.encode(value), self.version);
    }

    fn serve(&mut self, request: &Request) -> Response {
        // kubectl sends no token where there is no TLS.
        let is_kubectl = request
            .header("user-agent")
            .is_some_and(|agent| agent.starts_with("kubectl"));
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) && !is_kubectl {
            return status(401, "Unauthorized", "Unauthorized");
        }
        let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        let response = match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["version"]) => Response::new(200, shapes::version()),
            ("GET", ["api"]) => Response::new(200, shapes::versions()),
            ("GET", ["apis"]) => Response::new(200, shapes::groups()),
            ("GET", ["api", "v1"]) => Response::new(200, shapes::resources()),
            (method, ["api", "v1", "namespaces", namespace, "secrets", name]) => {
                self.secret(method, namespace, name, request)
            }
            _ => status(404, "NotFound", "the server could not find the requested resource"),
        };
        self.check("answer", &response.body);
        let answered = self.contract.check_status(request, response.status);
        // kubectl also asks what the document does not tell, such as for the document itself.
        let asked = match is_kubectl {
            true => Ok(()),
            false => self.contract.check_request(request),
        };
        self.broken
            .extend([asked, answered].into_iter().filter_map(Result::err));
        response
    }

    fn secret(&mut self, method: &str, namespace: &str, name: &str, request: &Request) -> Response {
        if self.forbidden.contains(namespace) {
            let text = format!(
                "secrets \"{name}\" is forbidden: User \"test\" cannot {method} resource \"secrets\" in API group \"\" in the namespace \"{namespace}\""
            );
            return status(403, "Forbidden", &text);
        }
        let key = (namespace.to_owned(), name.to_owned());
        match method {
            "GET" => match self.secrets.get(&key) {
                Some(stored) => Response::new(200, shapes::secret(namespace, name, stored)),
                None => status(404, "NotFound", &format!("secrets \"{name}\" not found")),
            },
            "DELETE" => match self.secrets.remove(&key) {
                Some(_) => Response::new(
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
                ),
                None => status(404, "NotFound", &format!("secrets \"{name}\" not found")),
            },
            "PATCH" => self.apply(&key, request),
            _ => status(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ),
        }
    }

    fn apply(&mut self, key: &(String, String), request: &Request) -> Response {
        let (namespace, name) = key;
        if request.header("content-type") != Some("application/apply-patch+yaml") {
            return status(415, "UnsupportedMediaType", "only server-side apply is taken here");
        }
        let Some(manager) = request.query("fieldManager").filter(|manager| !manager.is_empty()) else {
            return status(
                422,
                "Invalid",
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            );
        };
        if !self.namespaces.contains(namespace) {
            return status(404, "NotFound", &format!("namespaces \"{namespace}\" not found"));
        }
        let wanted = request.json();
        let is_it = wanted["kind"] == "Secret"
            && wanted["apiVersion"] == "v1"
            && wanted["metadata"]["name"] == **name
            && wanted["metadata"]["namespace"]
                .as_str()
                .is_none_or(|own| own == namespace);
        if !is_it {
            return status(400, "BadRequest", "the body is not the Secret of this address");
        }
        let is_forced = request.query("force") == Some("true");
        let before = self.secrets.get(key);
        let is_new = before.is_none();
        match apply::apply(before, name, manager, &wanted, is_forced, self.version + 1) {
            Err(refused) => refused,
            Ok(Applied { stored, has_changed }) => {
                // What was refused may have been wrong: that is what the refusal says.
                self.check("request", &wanted);
                let body = shapes::secret(namespace, name, &stored);
                if request.query("dryRun") != Some("All") {
                    self.version += u64::from(has_changed);
                    self.applies += usize::from(wanted["data"].is_object());
                    self.secrets.insert(key.clone(), stored);
                }
                Response::new(if is_new { 201 } else { 200 }, body)
            }
        }
    }

    fn check(&mut self, what: &str, object: &Value) {
        if let Err(problem) = self.contract.check(object) {
            self.broken.push(format!("{what}: {problem}"));
        }
    }
}
