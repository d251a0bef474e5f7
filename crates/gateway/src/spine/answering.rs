//! Room for long answers.
//!
//! What a command wrote is held once, as bytes. Only when there is room is it put into words, in the two forms that a
//! client gets, and the room is taken until those have left: a client that does not read its answers then costs what its
//! commands wrote, and not many times as much.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use super::Gateway;
use crate::execution::live::Live;
use crate::limits::{ANSWER_BYTES_SHORT, ANSWERS_BYTES_MAX};
use crate::service::{Answer, Room};
use crate::tools::exec::result::CommandResult;

/// What one permit stands for.
const PERMIT_BYTES: usize = 1 << 10;

pub(super) struct Rooms {
    free: Arc<Semaphore>,
    /// Told each time that a long answer is gone.
    left: Arc<Notify>,
}

impl Rooms {
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(ANSWERS_BYTES_MAX / PERMIT_BYTES)),
            left: Arc::default(),
        }
    }
}

impl Gateway {
    /// Resolves when a long answer has left, since the last time that somebody asked: there is memory to give back.
    pub async fn long_answer_left(&self) {
        self.rooms.left.notified().await;
    }

    /// Room for an answer that tells so many bytes of output. Must not be waited for with a lock held that another
    /// answer waits for.
    pub(super) async fn room_for(&self, bytes: usize) -> Room {
        if bytes <= ANSWER_BYTES_SHORT {
            return Room::default();
        }
        let taken = self.rooms.free.clone().acquire_many_owned(permits(bytes)).await;
        // Nobody closes it, so there is always room to come.
        taken.map_or_else(|_| Room::default(), |taken| Room::new(taken, self.rooms.left.clone()))
    }

    /// Room for whatever the record kept of a command.
    pub(super) async fn room_for_kept(&self) -> Room {
        self.room_for(self.settings.output_limit.saturating_mul(2)).await
    }

    /// The answer that tells how a command ended.
    pub(super) async fn answer_of_end(&self, live: &Live, end: &CommandResult) -> Answer {
        let room = self.room_for(live.output_bytes().max(end.text_bytes())).await;
        let (stdout, stderr) = live.texts(end);
        Answer {
            room,
            ..end.answer_telling(stdout, stderr)
        }
    }

    /// The answer that tells how far a command is.
    pub(super) async fn answer_of_running(&self, live: &Live) -> Answer {
        let room = self.room_for(live.output_bytes()).await;
        Answer {
            room,
            ..self.running(live).answer()
        }
    }
}

/// An answer in room that was taken before its size was known.
pub(super) fn fitted(result: CommandResult, mut room: Room) -> Answer {
    room.shrink_to(match result.text_bytes() {
        0..=ANSWER_BYTES_SHORT => 0,
        bytes => permits(bytes) as usize,
    });
    Answer {
        room,
        ..result.answer()
    }
}

/// An answer longer than all the room there is has all of it.
fn permits(bytes: usize) -> u32 {
    let permits = bytes.min(ANSWERS_BYTES_MAX).div_ceil(PERMIT_BYTES);
    u32::try_from(permits).unwrap_or(u32::MAX)
}
