//! `serve`: for now health, readiness and a page that says what is running.

use std::sync::Arc;

use anyhow::Context as _;
use countersign_gateway::audit::Pending;
use countersign_gateway::ids::IdSource;
use countersign_server::http::{About, HttpOptions, Readiness, serve_http};
use countersign_store::SqliteStore;
use tokio::net::TcpListener;

use crate::config::Flags;
use crate::start::{self, BadUsage, Started};

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let started = Started::load(flags)?;
    start::warn(&started);
    start::warn_of_interpreters(&started);
    let settings = &started.settings;
    start::runtime()?.block_on(async {
        let shutdown = start::stop_signal()?;
        let record = started.record().await?;
        started.keep_house(&record);
        // Questions expire while this runs, whoever asked them.
        let _board = started.board(&record, Vec::new());
        let listen = &settings.listen;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on `{listen}`"))?;
        let address = listener.local_addr().context("cannot tell the address")?;
        if !address.ip().is_loopback() {
            let sentence =
                format!("refusing to listen on {address}: only loopback addresses are served until tokens exist");
            return Err(BadUsage(sentence).into());
        }
        start::say(&format!("serving on http://{address}/"));
        let options = HttpOptions {
            about: About {
                workspace: settings
                    .places
                    .workspace_root
                    .as_ref()
                    .map_or_else(|| "any".into(), |root| root.display().to_string()),
                policy_mode: settings.approval.mode.clone(),
                state_directory: settings.state_dir.display().to_string(),
            },
            readiness: Arc::new(RecordIsThere(record)),
            shutdown_grace: settings.shutdown_grace,
            ids: IdSource::random(),
        };
        serve_http(listener, options, shutdown)
            .await
            .context("cannot go on serving")
    })
}

/// Ready while the record can be read.
struct RecordIsThere(Arc<SqliteStore>);

impl Readiness for RecordIsThere {
    fn check(&self) -> Pending<Result<(), String>> {
        let record = self.0.clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || record.tail(u64::MAX - 1).map(drop));
            match read.await {
                Ok(read) => read.map_err(|error| error.to_string()),
                Err(_) => Err("the record's reader was stopped".to_owned()),
            }
        })
    }
}
