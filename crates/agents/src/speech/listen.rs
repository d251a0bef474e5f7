//! Hearing a process to its end, and writing to it.

use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::job::driver::{AgentEvent, AgentEventKind, EventSink};
use countersign_sandbox::agent;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::talk::{Shared, with_end};
use super::{Step, noticed};
use crate::limits;
use crate::process::{Ending, Line, Lines, Process, Tree};

/// Whoever hears one process.
pub(super) struct Listener {
    pub(super) shared: Arc<Shared>,
    pub(super) tree: Tree,
    pub(super) mark: String,
    pub(super) ending: watch::Receiver<Option<Ending>>,
    pub(super) events: EventSink,
    /// Whose output is heard instead of the agent's own.
    pub(super) parser: Option<Process>,
}

impl Listener {
    /// Hears everything that is said, then tells of the end.
    pub(super) async fn follow(mut self, stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) {
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let errors = tokio::spawn(keep_tail(stderr, Arc::clone(&last_words)));
        if let Some(stdout) = stdout {
            self.hear(Lines::new(BufReader::new(stdout))).await;
        }
        let ending = Ending::of(self.ending.clone()).await;
        if let Some(parser) = self.parser.take() {
            self.end_parser(parser).await;
        }
        self.end_rest().await;
        let _ = timeout(limits::TERMINATE_GRACE, errors).await;
        let words = last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let events = self.shared.speech().gone(ending, &String::from_utf8_lossy(&words));
        for event in events {
            self.tell(event).await;
        }
        let Ending { status, signal } = ending;
        self.tell(noticed(AgentEventKind::Exited { status, signal })).await;
        agent::forget(&self.mark);
        self.shared.conclude();
    }

    /// Reads until nothing can come any more. A process that outlives the agent may hold its output, so the
    /// agent's end starts the end of the rest.
    async fn hear(&mut self, mut lines: Lines<BufReader<ChildStdout>>) {
        let ending = Ending::of(self.ending.clone());
        tokio::pin!(ending);
        loop {
            tokio::select! {
                biased;
                line = lines.next() => match line {
                    Ok(Some(line)) => self.heard(line).await,
                    Ok(None) | Err(_) => return,
                },
                _ = &mut ending => break,
            }
        }
        self.end_rest().await;
        while let Ok(Ok(Some(line))) = timeout(limits::TERMINATE_GRACE, lines.next()).await {
            self.heard(line).await;
        }
    }

    /// A parser ends with its input; one that failed may have left something out.
    async fn end_parser(&self, parser: Process) {
        let ended = timeout(limits::TERMINATE_GRACE, Ending::of(parser.ending.clone())).await;
        parser.end().await;
        if !ended.is_ok_and(|ending| ending.status == Some(0)) {
            let message = "the parser of its output did not end well, so that events may be missing".to_owned();
            self.tell(noticed(AgentEventKind::Warning(message))).await;
        }
    }

    async fn heard(&self, line: Line) {
        self.shared.note_life();
        let text = match line {
            Line::Text(text) => text,
            Line::TooLong { bytes } => {
                let message = format!("a line of {bytes} bytes was left out");
                return self.tell(noticed(AgentEventKind::Warning(message))).await;
            }
        };
        let steps = self.shared.speech().hear(&text);
        for step in steps {
            match step {
                Step::Tell(event) => self.tell(event).await,
                Step::Write(value) => self.shared.write(vec![value]),
                Step::Begin => self.shared.spare(&self.tree).await,
                Step::End => self.end_rest().await,
            }
        }
        self.shared.announce();
    }

    async fn tell(&self, event: AgentEvent) {
        // Whoever followed it may have gone; the agent is ended by whoever comes after.
        let _ = self.events.send(event).await;
    }

    async fn end_rest(&self) {
        if let Err(survivors) = self.tree.end(&Default::default()).await {
            tracing::error!(pids = ?survivors.0, "processes of an agent could not be killed");
        }
    }
}

/// Writes every line, until the agent takes no more or there is nobody left to say something.
pub(super) async fn write_all(stdin: Option<ChildStdin>, mut lines: mpsc::UnboundedReceiver<Value>) {
    let Some(mut stdin) = stdin else {
        return;
    };
    while let Some(line) = lines.recv().await {
        let written = stdin.write_all(with_end(&line).as_bytes()).await;
        if written.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Reads an error stream to its end and keeps the last of it.
async fn keep_tail(stderr: Option<ChildStderr>, kept: Arc<Mutex<Vec<u8>>>) {
    let Some(mut stderr) = stderr else {
        return;
    };
    let mut part = vec![0; 4096];
    while let Ok(length @ 1..) = stderr.read(&mut part).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&part[..length]);
        let excess = kept.len().saturating_sub(limits::STDERR_BYTES_KEPT);
        kept.drain(..excess);
    }
}
