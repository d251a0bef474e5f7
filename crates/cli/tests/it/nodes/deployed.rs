//! What is shipped to run nodes with, followed to the letter: the manifests' own words start pods whose probes are answered,
//! and the unit's own line starts a service. Each has a network of its own in which nobody else is, so that
//! addresses and ports can stay as they are written; only paths are replaced.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::field::Field;
use crate::bench::{Bench, is_root};
use crate::client::eventually;

const BINARY: &str = env!("CARGO_BIN_EXE_countersign");

fn shipped(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// What is replaced in everything that is shipped.
struct Paths(Vec<(&'static str, String)>);

impl Paths {
    fn put(&self, text: &str) -> String {
        let replaced = |text: String, (from, to): &(&str, String)| text.replace(from, to);
        self.0.iter().fold(text.to_owned(), replaced)
    }
}

/// A process that serves in a network of its own, as a user without rights.
struct Alone(Child);

impl Alone {
    /// Runs a line with this environment and nothing else.
    fn start(line: &[&str], user: u32, directory: &Path, environment: &[(String, String)]) -> Self {
        let user = user.to_string();
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--", "sh", "-c", r#"ip link set lo up && exec "$@""#, "alone"])
            .args([
                "setpriv",
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
                "--no-new-privs",
            ])
            .args(["--inh-caps=-all", "--bounding-set=-all", "--"])
            .args(line)
            .env_clear()
            .env("PATH", path())
            .envs(environment.iter().cloned())
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        Self(command.spawn().unwrap())
    }

    /// Does something in its network.
    fn beside(&self, line: &[&str]) -> Output {
        let pid = self.0.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid, "--net", "--"]).args(line);
        command.output().unwrap()
    }

    /// The status of what is asked as the kubelet asks: by the pod's address.
    fn probe(&self, path: &str, port: u64) -> u16 {
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.1\\r\\nHost: 10.244.1.7:{port}\\r\\n\
             User-Agent: kube-probe/1.34\\r\\nAccept: */*\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3"
        );
        let answer = self.beside(&["bash", "-c", &script]);
        let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
        answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0)
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Ends it as an orchestrator does, which gives it so long.
    #[track_caller]
    fn stop(mut self, within: Duration) {
        self.signal("-TERM");
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(began.elapsed() < within, "it does not end in time");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `countersign` is found by its name, as in the image.
fn path() -> String {
    let binary = Path::new(BINARY).parent().unwrap().display().to_string();
    format!("{binary}:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// Whether networks can be made here.
fn can_be_alone() -> bool {
    let can = is_root() && ["ip", "nsenter", "setpriv", "bash"].iter().all(|name| on_path(name));
    if !can {
        println!("skipped: needs root, iproute2 and util-linux");
    }
    can
}

fn on_path(name: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|place| Path::new(place).join(name).exists())
}

fn owned(path: &Path, user: u32, mode: u32) -> PathBuf {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
    path.to_owned()
}

/// The values of a line of the Dockerfile that is a list.
fn listed(dockerfile: &str, instruction: &str) -> Vec<String> {
    let line = dockerfile
        .lines()
        .find(|line| line.starts_with(instruction))
        .expect(instruction);
    serde_json::from_str(&line[line.find('[').expect("a list")..]).expect("a list of texts")
}

#[test]
fn the_manifests_start_pods_whose_probes_are_answered_also_while_the_database_is_away() {
    if !can_be_alone() {
        return;
    }
    let Some(field) = Field::empty(0, Bench::new()) else {
        return;
    };
    let database = field.database.socket_url.clone();
    // Over its socket, which is reached from any network.
    let socket = database.split(['@', ':']).nth(2).unwrap().replace("%2F", "/");
    fs::set_permissions(&socket, Permissions::from_mode(0o755)).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&shipped("deploy/kubernetes/countersign.yaml")).unwrap();
    let object = |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect("one");
    let pod = &object("StatefulSet")["spec"]["template"]["spec"];
    let user = u32::try_from(pod["securityContext"]["runAsUser"].as_u64().unwrap()).unwrap();
    let dockerfile = shipped("Dockerfile");
    let container = &pod["containers"][0];
    let port = container["ports"][0]["containerPort"].as_u64().unwrap();
    let serve = {
        let mut line = listed(&dockerfile, "ENTRYPOINT");
        line.extend(
            container["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|word| word.as_str().unwrap().to_owned()),
        );
        line
    };
    let serve: Vec<&str> = serve.iter().map(String::as_str).collect();
    let mut pods = Vec::new();
    for number in 0..2 {
        let base = owned(&field.bench.path(&format!("tmp/pod-{number}")), user, 0o755);
        let place = |name: &str| owned(&base.join(name), user, 0o755).display().to_string();
        let paths = Paths(vec![
            ("/var/lib/countersign", place("state")),
            ("/workspace", place("workspace")),
            (
                "/etc/countersign/config.yaml",
                base.join("config.yaml").display().to_string(),
            ),
        ]);
        let config = object("ConfigMap")["data"]["config.yaml"].as_str().unwrap();
        fs::write(base.join("config.yaml"), paths.put(config)).unwrap();
        let image = dockerfile.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap();
        let (name, value) = image.split_once('=').unwrap();
        let mut environment = vec![
            (name.to_owned(), paths.put(value)),
            ("HOME".to_owned(), place("home")),
            ("TMPDIR".to_owned(), place("tmp")),
        ];
        for variable in container["env"].as_array().unwrap() {
            let value = match &variable["valueFrom"]["secretKeyRef"]["key"] {
                Value::String(key) if key == "database" => database.clone(),
                _ => paths.put(variable["value"].as_str().unwrap()),
            };
            environment.push((variable["name"].as_str().unwrap().to_owned(), value));
        }
        let directory = base.join("workspace");
        let init = &pod["initContainers"][0];
        let script = paths.put(init["args"][0].as_str().unwrap());
        // A pod that is restarted does this again.
        for _ in 0..2 {
            let mut first = Alone::start(&["sh", "-c", &script], user, &directory, &environment);
            assert!(first.0.wait().unwrap().success());
        }
        assert_eq!(base.join("state/first-token").exists(), number == 0);
        pods.push(Alone::start(&serve, user, &directory, &environment));
    }
    let probes = ["startupProbe", "livenessProbe", "readinessProbe"].map(|name| {
        let path = container[name]["httpGet"]["path"].as_str().unwrap().to_owned();
        (name, path)
    });
    for pod in &pods {
        for (name, path) in &probes {
            eventually(name, || pod.probe(path, port) == 200);
        }
        let health = listed(&dockerfile, "HEALTHCHECK");
        let health: Vec<&str> = health.iter().map(String::as_str).collect();
        assert!(pod.beside(&health).status.success());
    }
    assert_eq!(field.count("SELECT count(*) FROM tokens"), 1);
    field.cluster.stop();
    for pod in &pods {
        eventually("it is not ready", || pod.probe(&probes[2].1, port) == 503);
        assert_eq!(pod.probe(&probes[1].1, port), 200, "it is not restarted for that");
    }
    field.cluster.start_again();
    for pod in &pods {
        eventually("it is ready again", || pod.probe(&probes[2].1, port) == 200);
    }
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    for pod in pods {
        pod.stop(Duration::from_secs(grace));
    }
}

#[test]
fn the_units_own_line_starts_a_service_that_is_reloaded_and_stops_in_time() {
    if !can_be_alone() {
        return;
    }
    let bench = Bench::new();
    let unit = shipped("deploy/systemd/countersign.service");
    let values = |name: &str| -> Vec<String> {
        let prefix = format!("{name}=");
        unit.lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    };
    let value = |name: &str| values(name).pop().unwrap_or_else(|| panic!("{name} is not set"));
    let user = 10_002;
    let base = owned(&bench.path("tmp/machine"), user, 0o755);
    let cache = owned(&base.join("cache"), user, 0o755);
    let paths = Paths(vec![
        ("/var/lib", base.display().to_string()),
        ("/var/cache", cache.display().to_string()),
        ("/etc/countersign", base.join("etc").display().to_string()),
        ("/usr/local/bin/countersign", BINARY.to_owned()),
    ]);
    for (place, name) in [(&base, "StateDirectory"), (&cache, "CacheDirectory")] {
        let mode = u32::from_str_radix(&value(&format!("{name}Mode")), 8).unwrap();
        for directory in value(name).split(' ') {
            owned(&place.join(directory), user, mode);
        }
    }
    fs::create_dir(base.join("etc")).unwrap();
    fs::write(base.join("etc/config.yaml"), "command_policy: {allowlist: [git]}\n").unwrap();
    let mut environment: Vec<(String, String)> = values("Environment")
        .iter()
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), paths.put(value)))
        .collect();
    environment.push(("HOME".to_owned(), base.join("countersign").display().to_string()));
    let line = paths.put(&value("ExecStart"));
    let line: Vec<&str> = line.split(' ').collect();
    let directory = PathBuf::from(paths.put(&value("WorkingDirectory")));
    let service = Alone::start(&line, user, &directory, &environment);
    // On loopback, as it listens where nothing else is said.
    let ready = |service: &Alone| {
        let script = "exec 3<>/dev/tcp/127.0.0.1/7420 && printf 'GET /readyz HTTP/1.1\\r\\nHost: 127.0.0.1:7420\\r\\n\
                      Connection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3";
        String::from_utf8_lossy(&service.beside(&["bash", "-c", script]).stdout).contains(" 200 ")
    };
    eventually("it is ready", || ready(&service));
    assert!(value("ExecReload").ends_with("-HUP $MAINPID"));
    service.signal("-HUP");
    assert!(ready(&service));
    let state = fs::metadata(base.join("countersign/state")).unwrap();
    assert_eq!(state.permissions().mode() & 0o777, 0o700);
    service.stop(Duration::from_secs(value("TimeoutStopSec").parse().unwrap()));
}
