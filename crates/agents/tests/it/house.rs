//! Where an agent lives during a test: its user, home, workspace, and what it said.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::time::Duration;

use countersign_agents::{Household, Launcher};
use countersign_gateway::job::driver::{
    AgentEvent, AgentEventKind, AgentQuestion, EventSink, Input, ProcessMark, Resume, Start, Taking, Terms, TurnEnd,
    Words,
};
use countersign_gateway::job::guidance::Guidance;
use countersign_gateway::policy::effective::{Mode, SandboxMode};
use countersign_sandbox::Identity;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::shared::{installed, marked};

/// Long enough for a slow machine with many tests; nothing is expected to take it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const NOBODY: u32 = 65534;

pub(crate) struct House {
    base: tempfile::TempDir,
    pub(crate) job_id: String,
    is_root: bool,
}

impl House {
    pub(crate) fn new() -> House {
        let base = tempfile::tempdir().unwrap();
        let is_root = fs::metadata(base.path()).unwrap().uid() == 0;
        let house = House {
            base,
            job_id: format!("job_{}", uuid::Uuid::now_v7().simple()),
            is_root,
        };
        fs::set_permissions(house.base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["home", "tmp", "workspace", "state"] {
            house.make(name);
        }
        fs::write(house.path("state").join("key"), "the secret").unwrap();
        house
    }

    fn make(&self, name: &str) {
        let path = self.base.path().join(name);
        fs::create_dir(&path).unwrap();
        if self.is_root {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.base.path()).unwrap().join(name)
    }

    pub(crate) fn household(&self) -> Household {
        Household {
            identity: self.is_root.then_some(Identity {
                uid: NOBODY,
                gid: NOBODY,
                groups: Vec::new(),
            }),
            path: format!(
                "{}:/usr/local/bin:/usr/bin:/bin",
                installed::place().join("bin").display()
            ),
            home: self.path("home"),
            tmp: self.path("tmp"),
            hidden: vec![self.path("state")],
            runtime: self.path("runtime"),
        }
    }

    pub(crate) fn launcher(&self) -> Launcher {
        Launcher::new(self.household())
    }

    pub(crate) fn terms(&self, environment: &[(&str, String)]) -> Terms {
        Terms {
            job_id: self.job_id.clone(),
            caller: "tester".to_owned(),
            cwd: self.path("workspace"),
            model: None,
            effort: None,
            mode: Mode::Untrusted,
            sandbox: SandboxMode::WorkspaceWrite,
            keeps_still: false,
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            endpoint: None,
            guidance: Guidance::default(),
        }
    }

    pub(crate) fn start(&self, prompt: &str, terms: &Terms) -> Start {
        Start {
            prompt: text(prompt),
            terms: terms.clone(),
        }
    }

    pub(crate) fn resume(&self, id: &str, process: Option<ProcessMark>, words: Words, terms: &Terms) -> Resume {
        Resume {
            conversation_id: id.to_owned(),
            rollout: None,
            process,
            taking: Taking::Anyhow,
            words,
            asked: text("[[say from the beginning]]"),
            used: Default::default(),
            terms: terms.clone(),
        }
    }

    /// Processes that carry the job's mark.
    pub(crate) fn left(&self) -> Vec<u32> {
        marked::of_job(&self.job_id)
    }

    pub(crate) async fn nothing_is_left(&self) {
        eventually("nothing of the job runs", || self.left().is_empty()).await;
    }
}

/// A test must not leave anything behind, however it ended.
impl Drop for House {
    fn drop(&mut self) {
        let place = self.path("home").display().to_string();
        for pid in marked::in_environment(&place) {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

pub(crate) fn text(text: &str) -> Vec<Input> {
    vec![Input::Text(text.to_owned())]
}

/// What is said with the next turn.
pub(crate) fn next(prompt: &str) -> Words {
    Words::Next(text(prompt))
}

/// What is said only if the turn that was under way runs no more.
pub(crate) fn if_cut_off(prompt: &str) -> Words {
    Words::IfCutOff(text(prompt))
}

pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "it did not happen: {what}");
}

/// What an agent said, and what it says next.
pub(crate) struct Heard {
    events: mpsc::UnboundedReceiver<AgentEvent>,
    pub(crate) all: Vec<AgentEvent>,
}

impl Heard {
    pub(crate) fn new() -> (EventSink, Heard) {
        let (sink, mut source) = EventSink::new(64);
        // Whoever starts an agent waits for it, so somebody else takes care of what it says meanwhile.
        let (tell, events) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = source.recv().await {
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        (
            sink,
            Heard {
                events,
                all: Vec::new(),
            },
        )
    }

    pub(crate) async fn next(&mut self) -> AgentEventKind {
        match timeout(PATIENCE, self.events.recv()).await {
            Ok(Some(event)) => {
                self.all.push(event.clone());
                event.kind
            }
            Ok(None) => panic!("nothing more is said after {:?}", self.kinds()),
            Err(_) => panic!("nothing more was said in time after {:?}", self.kinds()),
        }
    }

    pub(crate) async fn until<T>(&mut self, wanted: impl Fn(&AgentEventKind) -> Option<T>) -> T {
        loop {
            let kind = self.next().await;
            if let Some(found) = wanted(&kind) {
                return found;
            }
        }
    }

    pub(crate) async fn spawned(&mut self) -> ProcessMark {
        self.until(|kind| match kind {
            AgentEventKind::Spawned(mark) => Some(mark.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn started(&mut self) -> String {
        self.until(|kind| match kind {
            AgentEventKind::Started { conversation_id, .. } => Some(conversation_id.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn question(&mut self) -> AgentQuestion {
        self.until(|kind| match kind {
            AgentEventKind::ApprovalRequested(question) => Some(question.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn turn_end(&mut self) -> TurnEnd {
        self.until(|kind| match kind {
            AgentEventKind::TurnEnded(end) => Some(end.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn exited(&mut self) -> (Option<i32>, Option<i32>) {
        self.until(|kind| match kind {
            AgentEventKind::Exited { status, signal } => Some((*status, *signal)),
            _ => None,
        })
        .await
    }

    pub(crate) fn kinds(&self) -> Vec<&AgentEventKind> {
        self.all.iter().map(|event| &event.kind).collect()
    }

    /// The last totals that were told.
    pub(crate) fn usage(&self) -> Option<countersign_gateway::job::driver::Usage> {
        self.kinds().into_iter().rev().find_map(|kind| match kind {
            AgentEventKind::Usage(usage) => Some(usage.clone()),
            _ => None,
        })
    }
}

pub(crate) fn completed(text: &str) -> TurnEnd {
    TurnEnd::Completed {
        result: Some(text.to_owned()),
    }
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Whether this very process runs.
pub(crate) fn runs(mark: &ProcessMark) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", mark.pid)).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    fields
        .get(19)
        .is_some_and(|started| *started == mark.started.to_string())
        && fields[0] != "Z"
}
