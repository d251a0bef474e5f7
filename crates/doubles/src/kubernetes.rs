//! Kubernetes, as far as we use it: Secrets in namespaces, read, deleted and written by server-side apply, with the
//! fields that each manager keeps; and what `kubectl` asks before it does the same.
//!
//! Every Secret that comes in or goes out must be one by the types that are generated from the API description
//! which Kubernetes publishes: a field that they do not know, or that has another shape, is a broken contract.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};

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
    broken: Vec<String>,
}

#[derive(Clone, Default)]
struct Stored {
    data: BTreeMap<String, String>,
    version: u64,
    /// Which keys each manager applied.
    managers: BTreeMap<String, BTreeSet<String>>,
}

impl Kubernetes {
    pub fn start() -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        let served = world.clone();
        let address = http::serve(move |request| answer(&served, request));
        Self { address, world }
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
        STANDARD.decode(stored.data.get(key)?).ok()
    }

    /// What somebody else applies.
    pub fn apply_by(&self, manager: &str, namespace: &str, name: &str, key: &str, value: &str) {
        let mut world = self.world();
        world.version += 1;
        let version = world.version;
        let stored = world
            .secrets
            .entry((namespace.to_owned(), name.to_owned()))
            .or_default();
        stored.data.insert(key.to_owned(), STANDARD.encode(value));
        stored.version = version;
        stored
            .managers
            .entry(manager.to_owned())
            .or_default()
            .insert(key.to_owned());
    }

    /// How many applies changed or confirmed something.
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
        Some(Fault::Meanwhile(act)) => {
            act();
            Some(world.lock().unwrap().serve(request))
        }
    }
}

impl World {
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
            ("GET", ["version"]) => Response::new(200, json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})),
            ("GET", ["api"]) => Response::new(
                200,
                json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            ),
            ("GET", ["apis"]) => Response::new(200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
            ("GET", ["api", "v1"]) => Response::new(200, resources()),
            (method, ["api", "v1", "namespaces", namespace, "secrets", name]) => {
                self.secret(method, namespace, name, request)
            }
            _ => status(404, "NotFound", "the server could not find the requested resource"),
        };
        if response.body["kind"] == "Secret" {
            self.check("answer", &response.body);
        }
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
                Some(stored) => Response::new(200, shown(namespace, name, stored)),
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

    /// Server-side apply, by its published rules: a field that another manager keeps with another value is a
    /// conflict unless forced, and what a manager no longer names is taken away if nobody else keeps it.
    fn apply(&mut self, key: &(String, String), request: &Request) -> Response {
        let (namespace, name) = key;
        if request.header("content-type") != Some("application/apply-patch+yaml") {
            return status(415, "UnsupportedMediaType", "only server-side apply is taken here");
        }
        let Some(manager) = request.query("fieldManager").map(str::to_owned) else {
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
        self.check("request", &wanted);
        let is_it = wanted["kind"] == "Secret" && wanted["apiVersion"] == "v1" && wanted["metadata"]["name"] == **name;
        if !is_it {
            return status(400, "BadRequest", "the body is not the Secret of this address");
        }
        let fields: BTreeMap<String, String> = wanted["data"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let before = self.secrets.get(key).cloned();
        if let Some(version) = wanted["metadata"]["resourceVersion"].as_str()
            && before.as_ref().map(|stored| stored.version.to_string()).as_deref() != Some(version)
        {
            let text = format!(
                "Operation cannot be fulfilled on secrets \"{name}\": the object has been modified; please apply your changes to the latest version and try again"
            );
            return status(409, "Conflict", &text);
        }
        let mut stored = before.clone().unwrap_or_default();
        let is_forced = request.query("force") == Some("true");
        for (field, value) in &fields {
            let others = stored
                .managers
                .iter()
                .filter(|(known, kept)| **known != manager && kept.contains(field));
            let others: Vec<String> = others.map(|(known, _)| known.clone()).collect();
            if stored.data.get(field) != Some(value) && !others.is_empty() {
                if !is_forced {
                    let text = format!(
                        "Apply failed with 1 conflict: conflict with \"{}\": .data.{field}",
                        others[0]
                    );
                    return status(409, "Conflict", &text);
                }
                for other in others {
                    stored.managers.entry(other).or_default().remove(field);
                }
            }
        }
        let names: BTreeSet<String> = fields.keys().cloned().collect();
        let dropped = stored.managers.insert(manager, names.clone()).unwrap_or_default();
        for field in dropped.difference(&names) {
            if !stored.managers.values().any(|kept| kept.contains(field)) {
                stored.data.remove(field);
            }
        }
        stored.data.extend(fields);
        self.version += 1;
        stored.version = self.version;
        self.applies += 1;
        let body = shown(namespace, name, &stored);
        self.secrets.insert(key.clone(), stored);
        Response::new(if before.is_some() { 200 } else { 201 }, body)
    }

    /// Reads it by the published types and writes it again: whatever they do not know is missing then.
    fn check(&mut self, what: &str, secret: &Value) {
        let read = serde_json::from_value::<Secret>(secret.clone());
        let written = read
            .map_err(|error| error.to_string())
            .map(|read| serde_json::to_value(read).unwrap());
        if written.as_ref() != Ok(secret) {
            self.broken.push(format!("{what}: {secret} is read as {written:?}"));
        }
    }
}

fn shown(namespace: &str, name: &str, stored: &Stored) -> Value {
    let managed: Vec<Value> = stored
        .managers
        .iter()
        .map(|(manager, keys)| {
            let fields: Map<String, Value> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
            json!({
                "manager": manager, "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": fields},
            })
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": stored.data,
        "metadata": {
            "name": name, "namespace": namespace, "uid": "00000000-0000-4000-8000-000000000000",
            "resourceVersion": stored.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": managed,
        },
    })
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{
            "name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret",
            "verbs": ["delete", "get", "patch"],
        }],
    })
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Response::new(code, body)
}
