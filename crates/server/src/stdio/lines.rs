//! Cuts a stream into lines without ever holding more than one line and one read.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes asked for in one read.
const READ_BYTES: usize = 16 << 10;
/// A buffer that grew beyond this for one long line is given back afterwards.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// A line without its newline.
    Whole(&'a [u8]),
    /// A line beyond the limit. Said once, as soon as it is known; the rest is skipped unread.
    TooLong,
}

pub(super) struct Lines<R> {
    input: R,
    line_bytes_max: usize,
    buffer: Vec<u8>,
    /// Where the next line begins in `buffer`.
    start: usize,
    /// Up to where `buffer` is known to hold no newline of that line.
    scanned: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Reading,
    /// Inside a line that was too long.
    Skipping,
    Ended,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R, line_bytes_max: usize) -> Self {
        Self {
            input,
            line_bytes_max,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            state: State::Reading,
        }
    }

    /// The next line, or none at the end. A last line without a newline counts: a message cut off
    /// half-way is not valid JSON and says so itself.
    ///
    /// Can be dropped while waiting; no byte is lost.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let newline = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n');
            match (self.state, newline) {
                (State::Ended, _) if self.start == self.buffer.len() => return Ok(None),
                (State::Reading | State::Ended, Some(distance)) => {
                    let end = self.scanned + distance;
                    return Ok(Some(self.line(end, end + 1)));
                }
                (State::Skipping, Some(distance)) => {
                    self.advance_to(self.scanned + distance + 1);
                    self.state = State::Reading;
                }
                (State::Ended, None) => {
                    let end = self.buffer.len();
                    return Ok(Some(self.line(end, end)));
                }
                (State::Reading, None) if self.buffer.len() - self.start > self.line_bytes_max => {
                    self.state = State::Skipping;
                    self.advance_to(self.buffer.len());
                    return Ok(Some(Line::TooLong));
                }
                (State::Reading, None) => {
                    self.scanned = self.buffer.len();
                    self.fill().await?;
                }
                (State::Skipping, None) => {
                    self.advance_to(self.buffer.len());
                    self.fill().await?;
                }
            }
        }
    }

    fn line(&mut self, end: usize, next: usize) -> Line<'_> {
        let start = self.start;
        self.advance_to(next);
        if end - start > self.line_bytes_max {
            Line::TooLong
        } else {
            Line::Whole(&self.buffer[start..end])
        }
    }

    fn advance_to(&mut self, position: usize) {
        self.start = position;
        self.scanned = position;
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.make_room();
        let read = self.input.read_buf(&mut self.buffer).await?;
        if read == 0 {
            self.state = State::Ended;
        }
        Ok(())
    }

    /// Drops lines already handed out, and makes sure that a read is neither tiny nor wasteful.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
            if self.buffer.len() < READ_BYTES && self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer.shrink_to(READ_BYTES);
            }
        }
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES / 2 {
            self.buffer.reserve(READ_BYTES);
        }
    }
}
