//! `exec`: one command through the whole pipeline, from a terminal.

mod feeding;
mod passing;

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::approval::{Approver, NobodyToAsk};
use countersign_gateway::audit::Pending;
use countersign_gateway::error::{ADVICE, ErrorCode, PROGRAM_MISSING};
use countersign_gateway::limits;
use countersign_gateway::policy::effective::Mode;
use countersign_gateway::service::{Answer, Cancel, Origin, Progress, Service, ToolCall};
use countersign_gateway::session::Caller;
use rustix::process::Signal;
use rustix::termios::{QueueSelector, tcflush};
use serde_json::{Map, Value, json};

use self::feeding::Feeding;
use self::passing::Passing;
use crate::approvers::{self, Approvers};
use crate::cli::Exec;
use crate::config::Flags;
use crate::signals::{ENDED_BY_SIGNAL, Stop};
use crate::start::{self, Started};
use crate::terminal::{self, ReaderGone, clean, told};
use crate::wiring::{self, Launchpad};

const TIMED_OUT: u8 = 124;
const REFUSED: u8 = 126;
/// There is no such program, as shells say it.
const MISSING: u8 = 127;
/// What a person can do about it; whom a catalog is shown to is told of the catalog.
const SWITCHED_OFF: &str = "`execute_process`, by which this runs, is switched off under `tools` in the configuration";
/// How long standard input may take before it is said that we wait for it.
const INPUT_QUIET: Duration = Duration::from_secs(2);

pub(crate) fn run(flags: &Flags, exec: &Exec, launchpad: Launchpad) -> anyhow::Result<ExitCode> {
    let started = Started::load(flags)?;
    let _telemetry = started.telemetry()?;
    start::warn(&started);
    let user = wiring::user();
    started.check_secrets(&[])?;
    let outside = approvers::outside(&started.settings, &started.surroundings, None)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let approver: Arc<dyn Approver> = match terminal() {
        Some(terminal) if started.policy.approval.self_approval => Arc::new(AskTerminal {
            terminal,
            user: user.clone(),
            is_stopped: is_stopped.clone(),
        }),
        Some(_) => Arc::new(TellTerminal),
        // Services that are asked may answer what nobody here can.
        None if !outside.is_empty() => Arc::new(TellTerminal),
        None => Arc::new(NobodyToAsk),
    };
    let approvers = Approvers {
        here: vec![approver],
        outside,
    };
    // A command that may run a second time reads the same both times, so that is read first; and its first try is not its
    // output.
    let may_run_twice = started.policy.approval.mode == Mode::OnFailure;
    let arguments = match arguments(exec, may_run_twice) {
        Ok(arguments) => arguments,
        Err(error) => return Ok(refused(&format!("{error:#}"))),
    };
    let feeding = match may_run_twice {
        true => None,
        false => Feeding::of_stdin().context("cannot look at standard input")?,
    };
    start::runtime()?.block_on(async {
        let mut stop = Stop::listen()?;
        // Whoever sits here waits as long as it takes.
        let joined = tokio::select! {
            joined = started.joined(launchpad, approvers, Duration::MAX) => joined,
            code = stop.next() => leave(code),
        };
        let gateway = match joined.map(|joined| joined.gateway) {
            Ok(gateway) => gateway,
            Err(error) => {
                return Ok(refused(&format!("{error:#}")));
            }
        };
        let (cancel_handle, cancel) = Cancel::new();
        let (passing, writer) = Passing::start(feeding);
        let call = ToolCall {
            tool: "execute_process".to_owned(),
            arguments,
            progress: (!may_run_twice).then(|| passing.clone() as Arc<dyn Progress>),
            cancel,
            origin: Origin::default(),
            answer_within: None,
            user: None,
        };
        let mut answer = gateway.call(Caller::person(&user), call);
        let mut stopped = None;
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                code = stop.next() => {
                    if let Some(Stopped::BySignal(_)) = stopped.replace(Stopped::BySignal(code)) {
                        leave(code);
                    }
                    is_stopped.store(true, Ordering::Relaxed);
                    cancel_handle.cancel();
                }
                () = passing.unread(), if stopped.is_none() => {
                    stopped = Some(Stopped::Unread);
                    cancel_handle.cancel();
                }
            }
        };
        let answer = match answer {
            Ok(answer) => wait_for_end(&gateway, &user, answer).await,
            Err(refusal) => {
                let is_off = refusal.code == ErrorCode::UnknownTool;
                let why = if is_off { SWITCHED_OFF } else { &refusal.message };
                gateway.shutdown().await;
                return Ok(refused(why));
            }
        };
        gateway.shutdown().await;
        // Whoever reads our output may not do so for a while.
        let finished = tokio::task::spawn_blocking(move || {
            let was_passed_on = passing.end();
            writer.join()?;
            if !was_passed_on {
                pass_on(&answer)?;
            }
            Ok(finish(&answer, stopped))
        });
        tokio::select! {
            finished = finished => finished.context("the output was not passed on")?,
            code = stop.next() => leave(code),
        }
    })
}

/// Nothing ran, which no status of a command must be mistaken for.
fn refused(why: &str) -> ExitCode {
    start::say(&format!("countersign: refused: {why}"));
    ExitCode::from(REFUSED)
}

/// Ends at once: what runs for us ends with our end of its socket, and the next start closes its record.
fn leave(code: u8) -> ! {
    std::process::exit(code.into())
}

fn arguments(exec: &Exec, with_input: bool) -> anyhow::Result<Map<String, Value>> {
    let mut arguments = Map::new();
    let (file, args) = exec.argv.split_first().context("name a program behind `--`")?;
    arguments.insert("file".to_owned(), json!(file));
    arguments.insert("args".to_owned(), json!(args));
    if let Some(cwd) = &exec.cwd {
        arguments.insert("cwd".to_owned(), json!(cwd));
    }
    if let Some(timeout) = exec.timeout_ms {
        arguments.insert("timeout_ms".to_owned(), json!(timeout));
    }
    if with_input && let Some(input) = piped_input()? {
        arguments.insert("input".to_owned(), json!(input));
    }
    Ok(arguments)
}

/// All that stands on our standard input, unless a person does.
fn piped_input() -> anyhow::Result<Option<String>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut input = Vec::new();
    let _told = tell_of_waiting();
    stdin
        .lock()
        .take(limits::INPUT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut input)
        .context("cannot read standard input")?;
    anyhow::ensure!(
        input.len() <= limits::INPUT_BYTES_MAX,
        "standard input is longer than {} bytes",
        limits::INPUT_BYTES_MAX
    );
    if input.is_empty() {
        return Ok(None);
    }
    String::from_utf8(input)
        .map(Some)
        .context("standard input is not UTF-8")
}

/// Says what is waited for when it takes long, unless what this gives is dropped before: a pipe that somebody left open
/// would look like a command that hangs.
fn tell_of_waiting() -> mpsc::Sender<()> {
    let (waiting, over) = mpsc::channel();
    std::thread::spawn(move || {
        if over.recv_timeout(INPUT_QUIET) == Err(mpsc::RecvTimeoutError::Timeout) {
            start::say(
                "countersign: reading standard input to its end before the command begins; `</dev/null` gives it none",
            );
        }
    });
    waiting
}

/// A long command answers `running`; here it is waited for.
async fn wait_for_end(gateway: &dyn Service, user: &str, mut answer: Answer) -> Answer {
    while answer.structured["status"] == "running" {
        let mut arguments = Map::new();
        arguments.insert("request_id".to_owned(), answer.structured["request_id"].clone());
        arguments.insert("wait_ms".to_owned(), json!(limits::STATUS_WAIT_MAX.as_millis() as u64));
        let call = ToolCall {
            tool: "command_status".to_owned(),
            arguments,
            progress: None,
            cancel: Cancel::never(),
            origin: Origin::default(),
            answer_within: None,
            user: None,
        };
        match gateway.call(Caller::person(user), call).await {
            Ok(next) => answer = next,
            Err(_) => break,
        }
    }
    answer
}

/// Passes on the output of a command that was not followed: it ran elsewhere, or might have run twice.
fn pass_on(answer: &Answer) -> anyhow::Result<()> {
    let result = &answer.structured;
    let text = |name: &str| result[name].as_str().unwrap_or_default();
    let written = std::io::stdout()
        .write_all(text("stdout").as_bytes())
        .and_then(|()| std::io::stdout().flush());
    match told(written) {
        // The command has ended all the same, and how it did is still to be told.
        Err(error) if error.is::<ReaderGone>() => {}
        written => written?,
    }
    match std::io::stderr().write_all(text("stderr").as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write standard error")?,
    }
    for (name, stream) in [("stdout", "standard output"), ("stderr", "standard error")] {
        if result[format!("{name}_truncated")] == true {
            let bytes = &result[format!("{name}_bytes")];
            let limit = "`output_limit_bytes` says how much is passed on";
            start::say(&format!(
                "countersign: the middle of its {stream}, {bytes} bytes in all, was left out; {limit}"
            ));
        }
        if result[format!("{name}_lossy")] == true {
            let what = format!("bytes of its {stream} that are not UTF-8 were replaced");
            start::say(&format!("countersign: {what}"));
        }
    }
    Ok(())
}

/// Why a command was ended before its time.
#[derive(Clone, Copy)]
enum Stopped {
    /// With the exit code that shells know the signal by.
    BySignal(u8),
    /// Nobody reads what it writes.
    Unread,
}

/// Turns the result into an exit code, and tells what the code does not.
fn finish(answer: &Answer, stopped: Option<Stopped>) -> ExitCode {
    let result = &answer.structured;
    let text = |name: &str| result[name].as_str().unwrap_or_default();
    let explain = |word: &str| start::say(&format!("countersign: {word}: {}", text("error_message")));
    let code = match (text("status"), stopped) {
        ("ok", _) => 0,
        (_, Some(Stopped::BySignal(code))) => {
            explain("stopped");
            code
        }
        // As quietly as any program that writes to nobody.
        (_, Some(Stopped::Unread)) => ENDED_BY_SIGNAL + Signal::PIPE.as_raw() as u8,
        ("timeout", None) => {
            explain("timeout");
            TIMED_OUT
        }
        ("failed", None) => match result["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok()) {
            Some(code) if text("error_code") == "COMMAND_EXIT_NON_ZERO" => {
                if let Some(advice) = result["error_details"][ADVICE].as_str() {
                    start::say(&format!("countersign: {advice}"));
                }
                code
            }
            None if result["error_details"][PROGRAM_MISSING] == true => {
                explain("failed");
                MISSING
            }
            code => {
                explain("failed");
                let signal = result["error_details"]["signal"].as_u64();
                let by_signal = signal.and_then(|signal| ENDED_BY_SIGNAL.checked_add(u8::try_from(signal).ok()?));
                code.filter(|code| *code != 0).or(by_signal).unwrap_or(1)
            }
        },
        (_, None) => {
            explain("refused");
            REFUSED
        }
    };
    ExitCode::from(code)
}

/// The terminal itself, whatever standard input is.
fn terminal() -> Option<Arc<File>> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    terminal.is_terminal().then(|| Arc::new(terminal))
}

/// Asks the person who typed the command.
struct AskTerminal {
    terminal: Arc<File>,
    user: String,
    is_stopped: Arc<AtomicBool>,
}

impl Approver for AskTerminal {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Option<Ballot>> {
        let detail = |name: &str| clean(question.details.get(name).and_then(Value::as_str).unwrap_or_default());
        let reads = match question.details.contains_key("input_streamed") {
            true => "\nreads what is piped into it, which is not shown",
            false => "",
        };
        // What an agent wrote goes on below its own beginning, and comes to stand nowhere else.
        let columns = terminal::columns_of(&*self.terminal).saturating_sub(5);
        let command = terminal::wrapped(&detail("command"), columns).join("\n    ");
        let risks = question.details.get("risks").and_then(Value::as_array);
        let risks = risks.into_iter().flatten().filter_map(Value::as_str);
        let notes: String = risks.map(|risk| format!("note: {}\n", clean(risk))).collect();
        let text = format!(
            "\n{} wants to run\n\n    {command}\n\n{notes}in {}{reads}\nasked because: {}\napproval: {}\n\nrun it? [y/N] ",
            self.user,
            terminal::wrapped(&detail("cwd"), columns).join("\n   "),
            detail("reason"),
            question.id,
        );
        let (terminal, by) = (self.terminal.clone(), Decider::person(&self.user, OwnRequests::Allowed));
        let (sender, answer) = tokio::sync::oneshot::channel();
        let asked = Asked {
            terminal: Some(terminal.clone()),
            is_stopped: self.is_stopped.clone(),
        };
        // A thread that nobody waits for: somebody else may decide while this one still reads.
        std::thread::spawn(move || {
            let read = || -> std::io::Result<String> {
                // What was typed, or pasted, before there was a question is no answer to it.
                let _ = tcflush(&*terminal, QueueSelector::IFlush);
                (&*terminal).write_all(text.as_bytes())?;
                let mut line = String::new();
                BufReader::new(&*terminal).read_line(&mut line).map(|_| line)
            };
            let (choice, reason) = match read() {
                Ok(line) if matches!(line.trim(), "y" | "Y" | "yes") => {
                    (Choice::Allow, "self-approved on the terminal")
                }
                Ok(_) => (Choice::Deny, "denied on the terminal"),
                Err(_) => (Choice::Deny, "the terminal could not be asked"),
            };
            let reason = reason.to_owned();
            let _ = sender.send(Ballot {
                choice,
                by,
                reason,
                answer: None,
            });
        });
        Box::pin(async move {
            let mut asked = asked;
            let ballot = answer.await.ok();
            asked.terminal = None;
            ballot
        })
    }
}

/// A question on the terminal. One that is answered elsewhere says so, or its prompt would stand there
/// as if it still asked; whoever stopped it here knows.
struct Asked {
    terminal: Option<Arc<File>>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(terminal) = self.terminal.take() {
            let why: &[u8] = match self.is_stopped.load(Ordering::Relaxed) {
                true => b"\n",
                false => b"\ndecided elsewhere\n",
            };
            let _ = (&*terminal).write_all(why);
        }
    }
}

/// Tells the person at the terminal that somebody else has to decide.
pub(crate) struct TellTerminal;

impl Approver for TellTerminal {
    fn ask(&self, question: &ApprovalRequest) -> Pending<Option<Ballot>> {
        start::say(&format!(
            "countersign: this waits for another person's approval; they decide with `countersign approve {}`",
            question.id
        ));
        Box::pin(async { None })
    }
}
