//! A command while it runs: its output so far, its end when it comes, and the way to cancel it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::advice::{self, Advice};
use super::output::{Output, whole_characters};
use crate::audit::Asked;
use crate::audit::redact::Redactor;
use crate::clock::Timestamp;
use crate::ids::{ApprovalId, CorrelationId, RequestId};
use crate::policy::effective::Layer;
use crate::policy::plan::Plan;
use crate::service::{Origin, Progress};
use crate::tools::exec::request::{PageRequest, Stream};
use crate::tools::exec::result::{CommandResult, StreamResult};

/// One command, shared by the task that runs it and everyone who looks at it.
pub struct Live {
    pub request_id: RequestId,
    pub digest: String,
    pub started_at: Timestamp,
    /// The request it came in.
    pub origin: Origin,
    /// What ties all its events together.
    pub correlation_id: CorrelationId,
    /// Knows the secrets that the call itself brought; none brings the usual one.
    redactor: Option<Redactor>,
    /// When its own clock began: that of a command that waited for an answer begins with its run.
    began: Mutex<Instant>,
    stdout: Mutex<Output>,
    stderr: Mutex<Output>,
    output_limit: usize,
    progress: Option<Arc<dyn Progress>>,
    /// The beginning of a character, of each stream, that is reported with the rest of it.
    unfinished: Mutex<[Vec<u8>; 2]>,
    cancel: watch::Sender<bool>,
    /// Callers who wait for its end.
    attended: watch::Sender<usize>,
    /// The question it waits for.
    question: watch::Sender<Option<ApprovalId>>,
    /// The layers of confinement that it runs under; none before it is prepared.
    layers: Mutex<Vec<Layer>>,
    /// What to do about its failure.
    advice: Mutex<Option<String>>,
    end: watch::Sender<Option<Arc<CommandResult>>>,
}

impl Live {
    pub fn new(
        request_id: RequestId,
        digest: String,
        started_at: Timestamp,
        output_limit: usize,
        progress: Option<Arc<dyn Progress>>,
        origin: Origin,
        correlation_id: CorrelationId,
    ) -> Self {
        Self {
            request_id,
            digest,
            started_at,
            origin,
            correlation_id,
            redactor: None,
            began: Mutex::new(Instant::now()),
            stdout: Mutex::new(Output::with_limit(output_limit)),
            stderr: Mutex::new(Output::with_limit(output_limit)),
            output_limit,
            progress,
            unfinished: Mutex::default(),
            cancel: watch::Sender::new(false),
            attended: watch::Sender::new(0),
            question: watch::Sender::new(None),
            layers: Mutex::default(),
            advice: Mutex::default(),
            end: watch::Sender::new(None),
        }
    }

    /// Whoever prepared the command says what confines it, before it begins.
    pub fn confined_by(&self, layers: &[Layer]) {
        *self.layers.lock().unwrap_or_else(PoisonError::into_inner) = layers.to_vec();
    }

    /// What confines it, as far as it is prepared.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks for what to do about a command that failed, by what it said.
    pub fn advise(&self, plan: &Plan, status: i32, workspace: Option<Advice>) {
        let said = self.with(Stream::Stderr, |output| output.render().text);
        let advice = advice::on_failure(plan, status, &said, &self.layers(), workspace);
        *self.advice.lock().unwrap_or_else(PoisonError::into_inner) = advice;
    }

    pub(crate) fn advice(&self) -> Option<String> {
        self.advice.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whatever is kept of the command goes through this one.
    pub(crate) fn redacted_by(mut self, redactor: Option<Redactor>) -> Self {
        self.redactor = redactor;
        self
    }

    pub(crate) fn redactor<'a>(&'a self, usual: &'a Redactor) -> &'a Redactor {
        self.redactor.as_ref().unwrap_or(usual)
    }

    /// What the session must know again after a restart.
    pub(crate) fn asked(&self) -> Option<Asked> {
        self.origin.asked()
    }

    /// Takes output of the running command.
    pub fn push(&self, stream: Stream, bytes: &[u8]) {
        self.with(stream, |output| output.push(bytes));
        if let Some(progress) = &self.progress {
            progress.wrote(stream, bytes);
            let whole = self.unfinished(stream, |unfinished| {
                unfinished.extend(bytes);
                let rest = unfinished.split_off(whole_characters(unfinished));
                std::mem::replace(unfinished, rest)
            });
            report(&**progress, &whole);
        }
    }

    /// Resolves when whoever follows the output has room for more.
    pub async fn room(&self) {
        if let Some(progress) = &self.progress {
            progress.room().await;
        }
    }

    /// The next piece of what whoever follows it passes on for it to read; an empty one is the end.
    pub async fn fed(&self) -> Vec<u8> {
        match &self.progress {
            Some(progress) => progress.fed().await,
            None => Vec::new(),
        }
    }

    /// A sign of life for a client that waits with a progress token.
    pub fn report(&self, message: &str) {
        if let Some(progress) = &self.progress {
            progress.report(message);
        }
    }

    pub fn duration_ms(&self) -> u64 {
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Its clock begins now: the time that a person took to answer is not the command's.
    pub(crate) fn begin(&self) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// One more caller waits for it.
    pub(crate) fn attend(&self) {
        self.attended.send_modify(|count| *count += 1);
    }

    /// A caller has been answered.
    pub(crate) fn leave(&self) {
        self.attended.send_modify(|count| *count = count.saturating_sub(1));
    }

    pub(crate) fn is_attended(&self) -> bool {
        *self.attended.borrow() > 0
    }

    /// Resolves when no caller waits for it.
    pub(crate) async fn unattended(&self) {
        let mut attended = self.attended.subscribe();
        // The sender lives as long as `self`, so this cannot fail while we wait.
        let _ = attended.wait_for(|count| *count == 0).await;
    }

    /// It waits for an answer, or no longer does.
    pub(crate) fn waits_for(&self, question: Option<ApprovalId>) {
        self.question.send_replace(question);
    }

    /// The question it waits for.
    pub fn question(&self) -> Option<ApprovalId> {
        self.question.borrow().clone()
    }

    /// Resolves with the question it waits for, once that is another than the one seen.
    pub(crate) async fn asks(&self, seen: Option<&ApprovalId>) -> ApprovalId {
        let mut question = self.question.subscribe();
        loop {
            let asked = question.borrow_and_update().clone();
            if let Some(asked) = asked.filter(|asked| Some(asked) != seen) {
                return asked;
            }
            // The sender lives as long as `self`, so this cannot fail while we wait.
            let _ = question.changed().await;
        }
    }

    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    pub fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Resolves when somebody cancels the command.
    pub async fn cancelled(&self) {
        let mut cancel = self.cancel.subscribe();
        // The sender lives as long as `self`, so this cannot fail while we wait.
        let _ = cancel.wait_for(|cancelled| *cancelled).await;
    }

    /// Resolves when the command has ended and its record is closed.
    pub async fn ended(&self) -> Arc<CommandResult> {
        let mut end = self.end.subscribe();
        loop {
            if let Some(result) = end.borrow_and_update().clone() {
                return result;
            }
            if end.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub fn end(&self) -> Option<Arc<CommandResult>> {
        self.end.borrow().clone()
    }

    pub(crate) fn finish(&self, result: CommandResult) {
        if let Some(progress) = &self.progress {
            for stream in [Stream::Stdout, Stream::Stderr] {
                report(&**progress, &self.unfinished(stream, std::mem::take));
            }
        }
        self.end.send_replace(Some(Arc::new(result)));
    }

    /// What is worth keeping of a command that has ended. The secrets that its call brought are not: nothing is
    /// written of it any more, and with all the forms they may be printed in they can be larger than any output.
    pub(crate) fn remains(self: &Arc<Self>) -> Arc<Self> {
        if self.redactor.is_none() {
            return self.clone();
        }
        let remains = Self::new(
            self.request_id.clone(),
            self.digest.clone(),
            self.started_at,
            self.output_limit,
            None,
            self.origin.clone(),
            self.correlation_id.clone(),
        );
        for stream in [Stream::Stdout, Stream::Stderr] {
            let kept = self.with(stream, |output| output.clone());
            remains.with(stream, |output| *output = kept);
        }
        remains.end.send_replace(self.end());
        Arc::new(remains)
    }

    /// Bytes of output that are kept, of both streams.
    pub(crate) fn output_bytes(&self) -> usize {
        let streams = [Stream::Stdout, Stream::Stderr].map(|stream| self.with(stream, |output| output.kept()));
        streams.iter().sum()
    }

    /// What the end says, with what the command wrote.
    pub(crate) fn told(&self, end: &CommandResult) -> CommandResult {
        let mut told = end.clone();
        (told.stdout.text, told.stderr.text) = self.texts(end);
        told
    }

    /// What the command wrote, as its end tells of it.
    pub(crate) fn texts(&self, end: &CommandResult) -> (String, String) {
        let text = |stream: Stream, result: &StreamResult| match result.text.is_empty() && result.bytes > 0 {
            true => self.with(stream, |output| output.render().text),
            // What another wrote came with its end; an end that tells of no output stays without.
            false => result.text.clone(),
        };
        (text(Stream::Stdout, &end.stdout), text(Stream::Stderr, &end.stderr))
    }

    /// The memory that its output takes, here and in its result.
    pub(crate) fn bytes(&self) -> usize {
        let streams = [Stream::Stdout, Stream::Stderr].map(|stream| self.with(stream, |output| output.bytes()));
        let end = self.end();
        let told = end.map_or(0, |end| end.stdout.text.capacity() + end.stderr.text.capacity());
        streams.iter().sum::<usize>() + told
    }

    /// Both streams as they stand, without their texts.
    pub(crate) fn facts(&self) -> (StreamResult, StreamResult) {
        (
            self.with(Stream::Stdout, |output| StreamResult::facts_of(output)),
            self.with(Stream::Stderr, |output| StreamResult::facts_of(output)),
        )
    }

    /// Both streams as they stand.
    pub fn streams(&self) -> (StreamResult, StreamResult) {
        (
            self.with(Stream::Stdout, |output| StreamResult::of(output)),
            self.with(Stream::Stderr, |output| StreamResult::of(output)),
        )
    }

    /// What the command has said so far, for whoever looks for a reason.
    pub fn text(&self) -> String {
        let (stdout, stderr) = self.streams();
        stderr.text + &stdout.text
    }

    /// Forgets the output: the command is about to run again.
    pub fn restart(&self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.with(stream, |output| *output = Output::with_limit(self.output_limit));
            self.unfinished(stream, Vec::clear);
        }
        self.confined_by(&[]);
        *self.advice.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is kept of a stream, and whether something was left out in between.
    pub fn head_and_tail(&self, stream: Stream) -> (Vec<u8>, Vec<u8>, bool) {
        self.with(stream, |output| {
            (output.head().to_vec(), output.tail(), output.left_out() > 0)
        })
    }

    /// Reads a page of one stream into a result.
    pub fn fill_page(&self, result: &mut CommandResult, stream: Stream, page: PageRequest) {
        self.with(stream, |output| result.show_page(output, stream, page));
    }

    fn unfinished<T>(&self, stream: Stream, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let [stdout, stderr] = &mut *unfinished;
        act(match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        })
    }

    fn with<T>(&self, stream: Stream, act: impl FnOnce(&mut Output) -> T) -> T {
        let output = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        // A push cannot leave an output half done, so a poisoned one is still whole.
        act(&mut output.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn report(progress: &dyn Progress, bytes: &[u8]) {
    if !bytes.is_empty() {
        progress.report(&String::from_utf8_lossy(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorCode, Refusal};

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Progress for Told {
        fn report(&self, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    /// What is reported of pieces of output.
    fn reported(pieces: &[(Stream, &[u8])]) -> Vec<String> {
        let told = Arc::new(Told::default());
        let (id, began) = (RequestId::trusted("r"), Timestamp::from_millis(0));
        let (progress, correlation) = (told.clone() as Arc<dyn Progress>, CorrelationId::trusted("c"));
        let live = Live::new(
            id,
            String::new(),
            began,
            64,
            Some(progress),
            Origin::default(),
            correlation,
        );
        for (stream, piece) in pieces {
            live.push(*stream, piece);
        }
        let over = Refusal::new(ErrorCode::Cancelled, "over");
        live.finish(CommandResult::refused(live.request_id.clone(), began, over));
        std::mem::take(&mut *told.0.lock().unwrap())
    }

    #[test]
    fn a_character_is_reported_whole_however_it_arrives() {
        let (out, err) = (Stream::Stdout, Stream::Stderr);
        for (pieces, expected) in [
            (&[(out, &b"a\xc3"[..]), (out, b"\xa9b")][..], &["a", "\u{e9}b"][..]),
            (&[(out, b"\xc3"), (out, b"\xa9")], &["\u{e9}"]),
            (&[(out, b"\xf0\x9f"), (out, b"\x98"), (out, b"\x80!")], &["\u{1f600}!"]),
            // Each stream has its own.
            (&[(out, b"\xc3"), (err, b"x"), (out, b"\xa9")], &["x", "\u{e9}"]),
            // What never becomes one is told at the end, or with what follows.
            (&[(out, b"a\xc3")], &["a", "\u{fffd}"]),
            (&[(out, b"\xe2\x82"), (out, b"a")], &["\u{fffd}a"]),
            (&[(out, b"\xff")], &["\u{fffd}"]),
        ] {
            assert_eq!(reported(pieces), expected, "{pieces:?}");
        }
    }
}
