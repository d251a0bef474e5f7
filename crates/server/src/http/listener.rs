//! Connections: how many, how slowly they may speak, and how they end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::limits::{HEAD_BYTES_MAX, HEAD_PATIENCE, SHUTDOWN_TAIL};

use super::auth::Peer;
use super::line::Line;
use super::{HttpError, Server, front, upkeep};

/// Serves until `shutdown` resolves, then as long as the grace allows.
pub(super) async fn serve(server: Arc<Server>, listener: TcpListener, shutdown: impl Future) -> Result<(), HttpError> {
    let upkeep = tokio::spawn(upkeep::run(Arc::clone(&server)));
    let mut connections = JoinSet::new();
    let accepted = {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => admit(&server, &mut connections, stream, address),
                    Err(error) => match Unaccepted::of(&error) {
                        Unaccepted::This => {}
                        Unaccepted::Now => {
                            tracing::warn!(%error, "cannot accept connections for the moment");
                            sleep(Duration::from_millis(100)).await;
                        }
                        Unaccepted::Any => break Err(HttpError::Accept(error)),
                    },
                },
                // Ended connections are forgotten as they end.
                Some(_) = connections.join_next() => {}
                _ = &mut shutdown => break Ok(()),
            }
        }
    };
    drop(listener);
    server.stopping.send_replace(true);
    wind_down(&server, &mut connections).await;
    upkeep.abort();
    accepted
}

/// Lets short calls end, then ends the long ones. Sessions stay in the store.
async fn wind_down(server: &Arc<Server>, connections: &mut JoinSet<()>) {
    let grace = server.options.shutdown_grace;
    let start = Instant::now();
    let tail = SHUTDOWN_TAIL.min(grace / 2);
    for live in server.registry.all() {
        live.close_idle_streams();
    }
    // Calls end here, or go on until their trees are ended.
    let _ = timeout_at(start + (grace - tail), all_gone(connections)).await;
    let end = start + grace;
    if timeout_at(end, server.host.service.shutdown()).await.is_err() {
        tracing::warn!("commands did not end in time");
    }
    let _ = timeout_at(end, all_gone(connections)).await;
    let told = async {
        upkeep::note_activity(&server.registry).await;
        server.doorman.report_all(&server.host).await;
    };
    if timeout_at(end, told).await.is_err() {
        tracing::warn!("the last activity of sessions could not be noted in time");
    }
    connections.abort_all();
}

async fn all_gone(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

fn admit(server: &Arc<Server>, connections: &mut JoinSet<()>, stream: TcpStream, address: SocketAddr) {
    // Answers are small and whole; waiting to fill a packet only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Ok(permit) = Arc::clone(&server.connections).try_acquire_owned() else {
        let open = server.options.limits.connections_max;
        tracing::warn!(%address, "refused a connection: {open} are open");
        // One short write that cannot block; whoever does not get it sees the connection close.
        let _ = stream.try_write(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        return;
    };
    let mut peer = Peer {
        address,
        here: stream.local_addr().ok(),
        is_an_agent: OnceCell::new(),
        listener_is_loopback: server.is_loopback,
        speaks_plainly: false,
        wire: Arc::default(),
    };
    let server = Arc::clone(server);
    let stopping = server.stopping.subscribe();
    connections.spawn(async move {
        let _permit = permit;
        let _counted = server.options.gauges.connection();
        let acceptor = server.options.tls.as_ref().map(super::tls::Tls::acceptor);
        peer.speaks_plainly = acceptor.is_some() && is_from_here(&stream, address) && speaks_plainly(&stream).await;
        match acceptor.filter(|_| !peer.speaks_plainly) {
            None => converse(server, peer, stream, stopping).await,
            Some(acceptor) => match tokio::time::timeout(HEAD_PATIENCE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => converse(server, peer, stream, stopping).await,
                Ok(Err(error)) => tracing::debug!(%error, "a client could not agree on TLS"),
                Err(_) => tracing::debug!("a client was too slow to agree on TLS"),
            },
        }
    });
}

/// Whether a connection never leaves this machine.
fn is_from_here(stream: &TcpStream, address: SocketAddr) -> bool {
    let from = address.ip().to_canonical();
    from.is_loopback() || stream.local_addr().is_ok_and(|own| own.ip().to_canonical() == from)
}

/// Whether whoever connected begins with something else than TLS does. Nothing is taken off the line.
async fn speaks_plainly(stream: &TcpStream) -> bool {
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    let looked = tokio::time::timeout(HEAD_PATIENCE, stream.peek(&mut first)).await;
    matches!(looked, Ok(Ok(1))) && first[0] != HANDSHAKE
}

/// All requests of one connection.
async fn converse(
    server: Arc<Server>,
    peer: Peer,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    mut stopping: watch::Receiver<bool>,
) {
    let (server, peer) = (&server, &peer);
    let service = service_fn(async move |request| {
        Ok::<axum::http::Response<Body>, Infallible>(front::answer(server, peer, request).await)
    });
    let connection = http1::Builder::new()
        // Who sends no more may still read; the line finds out who has gone.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Line::new(stream, Arc::clone(&peer.wire))), service);
    let mut connection = pin!(connection);
    let mut cut = pin!(peer.wire.is_cut());
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = cut.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        // Half a head is no request: whoever sends it is not waited for.
        None if peer.wire.is_idle() => return,
        None => {
            // The request that is being answered is the last one.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = cut => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Which connections cannot be accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unaccepted {
    /// This one, which has gone already.
    This,
    /// None at the moment: descriptors or memory are short, or the kernel tells of trouble on the way to this one, which
    /// accept(2) wants to be tried again.
    Now,
    /// None ever: it is no socket that listens.
    Any,
}

impl Unaccepted {
    fn of(error: &io::Error) -> Self {
        const BAD_DESCRIPTOR: i32 = 9;
        const INVALID: i32 = 22;
        const NO_SOCKET: i32 = 88;
        match (error.kind(), error.raw_os_error()) {
            (
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::Interrupted,
                _,
            ) => Self::This,
            (_, Some(BAD_DESCRIPTOR | INVALID | NO_SOCKET)) => Self::Any,
            _ => Self::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_of_one_connection_ends_no_server() {
        for (name, code, meant) in [
            ("ECONNABORTED", 103, Unaccepted::This),
            ("EINTR", 4, Unaccepted::This),
            ("EMFILE", 24, Unaccepted::Now),
            ("ENOBUFS", 105, Unaccepted::Now),
            // A firewall forbids it, or its network went away meanwhile.
            ("EPERM", 1, Unaccepted::Now),
            ("EPROTO", 71, Unaccepted::Now),
            ("ENETDOWN", 100, Unaccepted::Now),
            ("EHOSTUNREACH", 113, Unaccepted::Now),
            ("EBADF", 9, Unaccepted::Any),
            ("EINVAL", 22, Unaccepted::Any),
        ] {
            assert_eq!(Unaccepted::of(&io::Error::from_raw_os_error(code)), meant, "{name}");
        }
    }
}
