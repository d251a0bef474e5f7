//! What systems that keep secrets have in common: how long they may take, and what is told of their faults.

use std::time::Duration;

use countersign_gateway::tools::secrets::keeping::KeeperError;

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a system as long as it may take.
pub(crate) async fn in_time(put: impl Future<Output = Result<(), KeeperError>>) -> Result<(), KeeperError> {
    tokio::time::timeout(PATIENCE, put).await.unwrap_or_else(|_| {
        let late = format!("no answer within {} s", PATIENCE.as_secs());
        Err(KeeperError::Unreachable(late))
    })
}

/// A connection that broke, by its first cause: what clients print above it is a backtrace, or nothing.
pub(crate) fn lost(error: &dyn std::error::Error) -> KeeperError {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    KeeperError::Unreachable(format!("no answer: {}", text.lines().next().unwrap_or_default()))
}
