//! A real coding agent on a bench: its program, its home, and a model on loopback that does what the prompt
//! says (`crates/agents/tests/shared/fakes`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::agents::fakes::{self, messages, responses};
use crate::agents::installed::{self, have};
use crate::agents::marked;
use crate::bench::{Bench, hand_over};
use crate::client::eventually;
use crate::web::Web;

/// The agents that are put on a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Player {
    CodexAppServer,
    CodexExec,
    Claude,
    /// Codex behind an adapter for the Agent Client Protocol.
    Acp,
    /// An agent that speaks that protocol itself.
    Opencode,
}

impl Player {
    fn program(self) -> &'static str {
        match self {
            Player::CodexAppServer | Player::CodexExec => "codex",
            Player::Claude => "claude",
            Player::Acp => "codex-acp",
            Player::Opencode => "opencode",
        }
    }

    /// What stands behind the program.
    fn arguments(self) -> &'static str {
        match self {
            Player::Opencode => ", acp",
            Player::CodexAppServer | Player::CodexExec | Player::Claude | Player::Acp => "",
        }
    }

    fn driver(self) -> &'static str {
        match self {
            Player::CodexAppServer => "codex-app-server",
            Player::CodexExec => "codex-exec",
            Player::Claude => "claude-stream",
            Player::Acp | Player::Opencode => "acp",
        }
    }
}

pub(super) struct Stage {
    web: Option<Web>,
    session: String,
    calls: i64,
    pub(super) bench: Bench,
    pub(super) model: fakes::Server,
}

impl Stage {
    /// The agent with a server in front of it, where the agent is installed.
    pub(super) fn set(player: Player) -> Option<Stage> {
        Self::set_with(player, "")
    }

    /// The same with more settings as YAML.
    pub(super) fn set_with(player: Player, more: &str) -> Option<Stage> {
        if !have(player.program()) {
            return None;
        }
        let bench = Bench::new();
        let home = room(&bench, "agent-home");
        let temporary = room(&bench, "agent-tmp");
        let model = match player {
            Player::Claude | Player::Opencode => messages::start(),
            Player::CodexAppServer | Player::CodexExec | Player::Acp => responses::start(),
        };
        let environment = match player {
            Player::Claude => installed::claude_environment(&model, &home),
            Player::Acp => installed::codex_acp_environment(&home),
            Player::Opencode => installed::opencode_environment(&model, &home),
            Player::CodexAppServer | Player::CodexExec => vec![("CODEX_HOME", home.display().to_string())],
        };
        if !matches!(player, Player::Claude | Player::Opencode) {
            fs::write(home.join("config.toml"), installed::codex_configuration(&model)).unwrap();
        }
        let environment = environment
            .into_iter()
            // Codex makes its commands nowhere below the temporary directory.
            .chain([("TMPDIR", temporary.display().to_string())])
            .map(|(name, value)| format!("{name}: '{value}'"));
        let config = format!(
            "agents:\n  - name: codex\n    driver: {}\n    command: ['{}'{}]\n    env: {{{}}}\n{more}",
            player.driver(),
            installed::program(player.program()).display(),
            player.arguments(),
            environment.collect::<Vec<_>>().join(", ")
        );
        let mut stage = Stage {
            web: None,
            session: String::new(),
            calls: 0,
            bench: bench.config(&config),
            model,
        };
        stage.serve();
        Some(stage)
    }

    /// A server, as after a restart.
    pub(super) fn serve(&mut self) {
        self.serve_on("127.0.0.1:0");
    }

    /// A server where another was.
    pub(super) fn serve_on(&mut self, address: &str) {
        let web = Web::serve_with(&self.bench, &["--listen", address]);
        self.session = web.session(json!({}));
        self.web = Some(web);
    }

    /// Where the server listens.
    pub(super) fn address(&self) -> String {
        self.web.as_ref().unwrap().address().to_owned()
    }

    /// Ends the server the hard way.
    pub(super) fn kill_server(&mut self) {
        if let Some(mut web) = self.web.take() {
            web.kill();
        }
    }

    /// Calls a tool as an agent does.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.calls += 1;
        super::call(self.web.as_ref().unwrap(), &self.session, self.calls, tool, arguments)
    }

    /// Waits for a job through its tool; gives what was told on the way.
    pub(super) fn wait_aloud(&self, job: &str) -> Vec<String> {
        let params = json!({"name": "job-status", "arguments": {"jobId": job, "wait_ms": 30_000},
            "_meta": {"progressToken": "p"}});
        let message = crate::web::legacy(99, "tools/call", params);
        let mut stream = self
            .web
            .as_ref()
            .unwrap()
            .stream("POST", "/mcp", &self.session, &message);
        let mut said = Vec::new();
        loop {
            let heard = stream.until(|message| message["id"] == 99 || message["method"] == "notifications/progress");
            if heard["id"] == 99 {
                return said;
            }
            said.extend(heard["params"]["message"].as_str().map(str::to_owned));
        }
    }

    /// Starts a task through its tool.
    #[track_caller]
    pub(super) fn start(&mut self, prompt: &str) -> String {
        let accepted = self.call("start-task", json!({"agent": "codex", "prompt": prompt}));
        assert_eq!(accepted["status"], "accepted", "{accepted}");
        accepted["jobId"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(super) fn until(&self, job: &str, status: &str) -> Value {
        super::until(&self.bench, job, status)
    }

    /// The job, once it has ended somehow.
    #[track_caller]
    pub(super) fn until_ended(&self, job: &str) -> Value {
        let mut shown = Value::Null;
        eventually("the job ends", || {
            shown = super::shown(&self.bench, &["jobs", "show", job, "--json"]);
            !matches!(shown["status"].as_str(), Some("pending" | "running"))
        });
        shown
    }

    /// Answers the question that is open, at the terminal.
    #[track_caller]
    pub(super) fn decide(&self, answer: &str) -> Value {
        let (question, details) = self.bench.question();
        super::told(&self.bench, &[answer, &question, "--reason", "because"]);
        details
    }

    pub(super) fn interrupt(&self, job: &str) {
        super::told(&self.bench, &["jobs", "interrupt", job]);
    }

    /// All processes of the agent, whatever they carry.
    pub(super) fn processes(&self) -> Vec<u32> {
        marked::in_environment(&home_of(&self.bench).display().to_string())
    }

    /// The agent's own process, as it is recorded.
    pub(super) fn agent(&self) -> Option<u32> {
        let query = "SELECT pid FROM agent_processes ORDER BY created_at_ms DESC LIMIT 1";
        self.bench.database().query_row(query, [], |row| row.get(0)).ok()
    }

    /// Commands of a job that sleep.
    pub(super) fn sleeping(&self) -> usize {
        let sleeping = self.processes().into_iter().filter(|pid| marked::is_sleeping(*pid));
        sleeping.count()
    }

    #[track_caller]
    pub(super) fn until_nothing_is_left(&self) {
        eventually("nothing of the agent runs", || self.processes().is_empty());
    }

    /// The lines of the job's file, once the file says what is kept: nothing lost, nothing twice.
    #[track_caller]
    pub(super) fn filed(&self, job: &Value) -> Vec<Value> {
        let file = Path::new(job["session"]["sessionDir"].as_str().unwrap()).join("events.jsonl");
        let mut lines = Vec::new();
        eventually("the file tells what is kept", || {
            let text = fs::read_to_string(&file).unwrap();
            lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let told: Vec<_> = lines
                .iter()
                .map(|line: &Value| line["eventId"].as_str().unwrap())
                .collect();
            told == self.kept(job["conversationId"].as_str().unwrap())
        });
        lines
    }

    /// The ids of a conversation's events, as they are kept.
    fn kept(&self, conversation: &str) -> Vec<String> {
        let query = "SELECT event_id FROM job_events JOIN job_sessions USING (session_id) \
            WHERE job_sessions.conversation_id = ?1 ORDER BY seq";
        let database = self.bench.database();
        let mut statement = database.prepare(query).unwrap();
        let rows = statement.query_map([conversation], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Tokens and dollars that are kept.
    pub(super) fn usage(&self) -> (i64, f64) {
        let query = "SELECT coalesce(sum(total_tokens), 0), coalesce(sum(cost_usd), 0.0) FROM token_usage";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        self.bench.database().query_row(query, [], read).unwrap()
    }

    pub(super) fn recorded(&self, kind: &str) -> i64 {
        let query = format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'");
        self.bench.count(&query)
    }

    /// Says what there was, for whoever reads why a test failed.
    fn tell(&self) {
        for pid in self.processes() {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut entries = environment.split(|byte| *byte == 0);
            let mark = entries.find(|entry| entry.starts_with(b"COUNTERSIGN_JOB="));
            println!(
                "process {pid}: {} {}",
                String::from_utf8_lossy(&line).replace('\0', " "),
                String::from_utf8_lossy(mark.unwrap_or_default())
            );
        }
        let query = "SELECT type || ' ' || data FROM job_events ORDER BY timestamp_ms, seq";
        let database = self.bench.database();
        let mut statement = database.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        for line in rows.map_while(Result::ok) {
            println!("{line}");
        }
    }

    /// What must hold however a job went: it began and ended once, its file is whole, nothing of it runs, no
    /// question waits, and the record verifies.
    #[track_caller]
    pub(super) fn close(mut self, job: &Value) -> Vec<Value> {
        let lines = self.filed(job);
        let count = |wanted: &[&str]| {
            let kinds = lines.iter().filter_map(|line| line["type"].as_str());
            kinds.filter(|kind| wanted.contains(kind)).count()
        };
        let ends = ["job-completed", "job-failed", "job-cancelled", "job-timeout"];
        assert_eq!((count(&["job-created"]), count(&ends)), (1, 1), "{lines:?}");
        assert!(count(&["job-started"]) <= 1, "{lines:?}");
        self.until_nothing_is_left();
        assert_eq!(
            self.bench
                .count("SELECT count(*) FROM approvals WHERE state = 'pending'"),
            0
        );
        self.web.take().unwrap().stop();
        self.bench.prove();
        lines
    }
}

/// A test must not leave anything behind, however it ended.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
        self.kill_server();
        self.processes().into_iter().for_each(kill);
    }
}

fn home_of(bench: &Bench) -> PathBuf {
    fs::canonicalize(bench.path("agent-home")).unwrap()
}

/// A directory of the user whom agents run as.
fn room(bench: &Bench, name: &str) -> PathBuf {
    let path = bench.path(name);
    fs::create_dir(&path).unwrap();
    hand_over(&path);
    fs::canonicalize(path).unwrap()
}

pub(super) fn kill(pid: u32) {
    // It may be gone already.
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
}

/// How often a line of this type stands in a file.
pub(super) fn count(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["type"] == kind).count()
}
