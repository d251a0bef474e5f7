//! Messages on their way out: a queue that every call may fill, and the one task that empties it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::service::Room;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::mcp::outlet::{Outgoing, Outlet};

/// A buffer that grew beyond this for one burst is given back afterwards.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// Wakes the writer.
    filled: Notify,
    /// Wakes the reader, which stops while too much is pending.
    emptied: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    /// Whole lines.
    waiting: Vec<u8>,
    /// What the long ones among them take of the room for those.
    rooms: Vec<Room>,
    /// Bytes the writer has taken and not yet written.
    leaving: usize,
    closed: bool,
}

/// Writes what is put into the outbox, until it is closed and empty.
pub(super) async fn write_all<W: AsyncWrite + Unpin>(outbox: Arc<Outbox>, mut output: W) -> io::Result<()> {
    let mut lines = Vec::new();
    while let Some(rooms) = outbox.take(&mut lines).await {
        output.write_all(&lines).await?;
        output.flush().await?;
        outbox.written();
        // The bytes go before the room they took.
        if !rooms.is_empty() {
            lines = Vec::new();
        }
    }
    Ok(())
}

impl Outbox {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            bytes_max,
        }
    }

    /// Resolves when so little is pending that more requests may be read.
    pub(super) async fn has_room(&self) {
        loop {
            if self.queue().pending() <= self.bytes_max {
                return;
            }
            // There is one reader, and a permit is stored if the writer was faster.
            self.emptied.notified().await;
        }
    }

    /// Nothing is taken after this; what is waiting still leaves.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.filled.notify_one();
    }

    /// Moves everything that waits into `lines`, and gives the room that is taken until it has left. None when closed and
    /// empty.
    async fn take(&self, lines: &mut Vec<u8>) -> Option<Vec<Room>> {
        lines.clear();
        lines.shrink_to(BUFFER_BYTES_KEPT);
        loop {
            {
                let mut queue = self.queue();
                if !queue.waiting.is_empty() {
                    std::mem::swap(&mut queue.waiting, lines);
                    queue.leaving = lines.len();
                    return Some(std::mem::take(&mut queue.rooms));
                }
                if queue.closed {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    fn written(&self) {
        self.queue().leaving = 0;
        self.emptied.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn pending(&self) -> usize {
        self.waiting.len() + self.leaving
    }

    fn push(&mut self, message: Outgoing) {
        let Outgoing { mut bytes, room, .. } = message;
        if room.is_taken() {
            self.rooms.push(room);
        }
        if self.waiting.is_empty() && bytes.len() > BUFFER_BYTES_KEPT {
            // One that is long and alone is not copied.
            bytes.push(b'\n');
            self.waiting = bytes;
            return;
        }
        self.waiting.reserve(bytes.len() + 1);
        self.waiting.append(&mut bytes);
        self.waiting.push(b'\n');
    }
}

impl Outlet for Outbox {
    fn send(&self, message: Outgoing) {
        let mut queue = self.queue();
        if queue.closed {
            return;
        }
        queue.push(message);
        drop(queue);
        self.filled.notify_one();
    }

    fn offer(&self, message: Outgoing) -> bool {
        let mut queue = self.queue();
        if queue.closed || queue.pending() + message.bytes.len() > self.bytes_max {
            return false;
        }
        queue.push(message);
        drop(queue);
        self.filled.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_long_answer_takes_room_until_it_was_read() {
        let free = Arc::new(Semaphore::new(5));
        let outbox = Arc::new(Outbox::new(1 << 20));
        let (mut client, output) = tokio::io::duplex(64);
        let writer = tokio::spawn(write_all(Arc::clone(&outbox), output));
        let room = Room::new(free.clone().try_acquire_many_owned(5).unwrap(), Arc::default());
        outbox.send(Outgoing::answer(vec![b'x'; 200]).in_room(room));
        outbox.close();
        let mut read = vec![0; 100];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(free.available_permits(), 0);
        client.read_to_end(&mut read).await.unwrap();
        writer.await.unwrap().unwrap();
        assert_eq!((free.available_permits(), read.len()), (5, 201));
    }
}
