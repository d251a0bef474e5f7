//! Noticing that an agent hangs.

use countersign_gateway::job::driver::Terms;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::definition::{Health, HealthMethod};
use crate::process::{Ending, Launch, Launcher, Streams, still};
use crate::speech::Talk;

/// Looks at a process until it ends, and ends it when it is not well.
pub(super) async fn watch(launcher: Launcher, health: Health, terms: Terms, talk: Talk) {
    loop {
        sleep(health.interval).await;
        if talk.is_over() || !talk.is_busy() {
            return;
        }
        let fault = match &health.method {
            // Its end is noticed without looking.
            HealthMethod::ProcessAlive => return,
            HealthMethod::Heartbeat => {
                let silence = talk.silence();
                (silence > health.timeout).then(|| format!("it has said nothing for {} ms", silence.as_millis()))
            }
            HealthMethod::Custom { command } => check(&launcher, command, &health, &terms).await.err(),
        };
        if let Some(fault) = fault {
            return talk.condemn(&format!("the agent is not well: {fault}")).await;
        }
    }
}

/// Runs a check; it is told which job it is about.
async fn check(launcher: &Launcher, command: &[String], health: &Health, terms: &Terms) -> Result<(), String> {
    let mut environment = terms.environment.clone();
    environment.insert("COUNTERSIGN_CHECKED_JOB".to_owned(), terms.job_id.clone());
    let started = launcher.start(Launch {
        command: command.to_vec(),
        cwd: terms.cwd.clone(),
        environment,
        mark: format!("check-{}", Uuid::now_v7().simple()),
        streams: Streams::Detached { errors: None },
        still: still(terms),
    });
    let process = started.map_err(|error| error.to_string())?;
    let ended = timeout(health.timeout, Ending::of(process.ending.clone())).await;
    process.end().await;
    match ended.map(|ending| ending.status) {
        Ok(Some(0)) => Ok(()),
        Ok(Some(status)) => Err(format!("its check ended with status {status}")),
        Ok(None) => Err("its check did not end by itself".to_owned()),
        Err(_) => Err(format!("its check took longer than {} ms", health.timeout.as_millis())),
    }
}
