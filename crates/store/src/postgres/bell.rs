//! How nodes wake each other: a notification that says nothing but *look again*.
//!
//! What there is to see stands in the tables. A notification that is lost, with its connection, costs the time until the
//! next look, so nothing here is an error worth more than a line in the log.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::Bell;
use countersign_gateway::audit::Pending;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::{AsyncMessage, Client};

use super::PgStore;
use super::readers::Readers;
use super::site::Site;

const LISTEN: &str = "LISTEN countersign";
const RING: &str = "SELECT pg_notify('countersign', $1::text)";
/// Between two attempts to listen.
const PAUSE: Duration = Duration::from_secs(1);

impl PgStore {
    /// A bell with an ear, for a process that stays.
    pub fn hang_bell(&self) -> impl Bell + use<> {
        let (ring, rings) = mpsc::unbounded_channel();
        let heard = Arc::new(Notify::new());
        let listening = listen(Arc::clone(&self.site), rings, Arc::clone(&heard));
        self.site.exchange.spawn(listening);
        Doorbell { ring, heard }
    }

    /// A bell without an ear, for a process that does not stay: it has rung when ringing returns.
    pub fn knock(&self) -> impl Bell + use<> {
        Knock(Arc::clone(&self.readers))
    }
}

struct Doorbell {
    ring: mpsc::UnboundedSender<()>,
    heard: Arc<Notify>,
}

impl Bell for Doorbell {
    fn ring(&self) {
        // Fails only when the store is gone.
        let _ = self.ring.send(());
    }

    fn rung(&self) -> Pending<()> {
        let heard = Arc::clone(&self.heard);
        Box::pin(async move { heard.notified().await })
    }
}

struct Knock(Arc<Readers>);

impl Bell for Knock {
    fn ring(&self) {
        let process = self.0.site.node.process();
        if let Err(error) = self.0.read(|link| link.query(RING, &[&process])) {
            tracing::debug!(%error, "nobody could be woken");
        }
    }

    fn rung(&self) -> Pending<()> {
        Box::pin(std::future::pending())
    }
}

/// Rings and listens over one connection, and over a new one when that is lost, until the bell is taken down.
async fn listen(site: Arc<Site>, mut rings: mpsc::UnboundedReceiver<()>, heard: Arc<Notify>) {
    loop {
        match site.address.config.connect(site.address.tls.clone()).await {
            Ok((client, mut connection)) => {
                let (own, ear) = (site.node.process().to_owned(), Arc::clone(&heard));
                let hearing = tokio::spawn(async move {
                    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await
                    {
                        if let AsyncMessage::Notification(said) = message
                            && said.payload() != own
                        {
                            ear.notify_one();
                        }
                    }
                });
                let is_over = serve(&client, site.node.process(), &mut rings, &heard, hearing).await;
                if is_over {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "the bell of the database cannot be heard"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// True when the bell was taken down, false when the connection was lost.
async fn serve(
    client: &Client,
    own: &str,
    rings: &mut mpsc::UnboundedReceiver<()>,
    heard: &Notify,
    mut hearing: tokio::task::JoinHandle<()>,
) -> bool {
    if client.batch_execute(LISTEN).await.is_err() {
        return false;
    }
    // Somebody may have rung while nobody listened.
    heard.notify_one();
    loop {
        tokio::select! {
            rung = rings.recv() => {
                if rung.is_none() {
                    hearing.abort();
                    return true;
                }
                // One notification is enough for all that rang meanwhile.
                while rings.try_recv().is_ok() {}
                if client.query(RING, &[&own]).await.is_err() {
                    return false;
                }
            }
            _ = &mut hearing => return false,
        }
    }
}
