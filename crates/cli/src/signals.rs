//! The signals that end a process which somebody started for themselves: `exec` at a terminal, `stdio` by a client.

use std::task::Poll;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What shells make of a signal; its number is added.
pub(crate) const ENDED_BY_SIGNAL: u8 = 128;

/// SIGINT, SIGTERM and SIGHUP, but for those that whoever started us wants ignored, as `nohup` does.
pub(crate) struct Stop {
    signals: Vec<(u8, Signal)>,
}

impl Stop {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let ignored = ignored();
        let wanted = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let heeded = wanted
            .into_iter()
            .filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
        let signals = heeded.map(|kind| Ok((ENDED_BY_SIGNAL + kind.as_raw_value() as u8, signal(kind)?)));
        let signals: std::io::Result<_> = signals.collect();
        Ok(Self {
            signals: signals.context("cannot listen for signals")?,
        })
    }

    /// Resolves at the next one, with the exit code that shells know it by.
    pub(crate) async fn next(&mut self) -> u8 {
        std::future::poll_fn(|context| {
            for (code, signal) in &mut self.signals {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*code);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// A mask of the signals that this process was started to ignore; none where the kernel does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
