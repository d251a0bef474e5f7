//! What is kept of a command's output: all that its caller is told, without secrets.
//!
//! Finding secrets in a megabyte takes long enough for others to notice, and all calls are served by one thread. So what
//! is long goes to another one; a short output is not worth the way there.

use std::borrow::Cow;
use std::sync::Arc;

use super::Gateway;
use crate::audit::redact::Redactor;
use crate::execution::live::Live;
use crate::limits;
use crate::tools::exec::request::Stream;

/// Both streams as they are kept, and how much of each is its head.
pub(super) struct KeptOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stdout_head: usize,
    pub(super) stderr: Vec<u8>,
    pub(super) stderr_head: usize,
}

impl Gateway {
    pub(super) async fn kept(&self, live: &Arc<Live>) -> KeptOutput {
        if live.output_bytes() <= limits::REDACTED_AT_ONCE_BYTES {
            return without_secrets(live, &self.ports.redactor);
        }
        // Nobody closes it, so there is always a turn to come.
        let _turn = self.redacting.acquire().await;
        let (output, usual) = (live.clone(), self.ports.redactor.clone());
        match tokio::task::spawn_blocking(move || without_secrets(&output, &usual)).await {
            Ok(kept) => kept,
            Err(broken) => match broken.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is being taken down, and lends no more threads.
                Err(_) => without_secrets(live, &self.ports.redactor),
            },
        }
    }
}

fn without_secrets(live: &Live, usual: &Redactor) -> KeptOutput {
    let redactor = live.redactor(usual);
    let (stdout, stdout_head) = kept(live, redactor, Stream::Stdout);
    let (stderr, stderr_head) = kept(live, redactor, Stream::Stderr);
    KeptOutput {
        stdout,
        stdout_head,
        stderr,
        stderr_head,
    }
}

/// What is kept of a stream, and how much of it is its head. Where nothing was left out there is one text: a secret may
/// lie across the place where head and tail meet.
fn kept(live: &Live, redactor: &Redactor, stream: Stream) -> (Vec<u8>, usize) {
    let (mut head, tail, is_cut) = live.head_and_tail(stream);
    if !is_cut {
        head.extend(tail);
        let whole = clean(head, |text| redactor.redact_text(text));
        let split = whole.len();
        return (whole, split);
    }
    let head = clean(head, |text| redactor.redact_head(text));
    let split = head.len();
    let tail = clean(tail, |text| redactor.redact_tail(text));
    ([head, tail].concat(), split)
}

/// Bytes in which nothing had to go stay as they are, whatever they are.
fn clean(bytes: Vec<u8>, redact: impl Fn(&str) -> Cow<'_, str>) -> Vec<u8> {
    match redact(&String::from_utf8_lossy(&bytes)) {
        Cow::Borrowed(_) => bytes,
        Cow::Owned(text) => text.into_bytes(),
    }
}
