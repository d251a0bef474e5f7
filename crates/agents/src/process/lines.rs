//! Lines of an agent, of bounded length.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use crate::limits::LINE_BYTES_MAX;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    /// A line that was too long to keep; its rest was skipped.
    TooLong {
        bytes: usize,
    },
}

/// Reads lines without ever holding more than one.
pub(crate) struct Lines<R> {
    from: R,
    bytes_max: usize,
    /// Of the line that is being read. Kept here, so that a reader that is dropped half-way loses nothing.
    kept: Vec<u8>,
    bytes: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(from: R) -> Lines<R> {
        Lines {
            from,
            bytes_max: LINE_BYTES_MAX,
            kept: Vec::new(),
            bytes: 0,
        }
    }

    /// The next line that is not empty; none at the end. A last line without its end counts too.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let found = self.from.fill_buf().await?;
            let (taken, is_whole) = match found.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (found.len(), false),
            };
            let is_over = found.is_empty();
            let content = &found[..taken - usize::from(is_whole)];
            self.bytes += content.len();
            if self.bytes <= self.bytes_max {
                self.kept.extend_from_slice(content);
            } else {
                self.kept = Vec::new();
            }
            self.from.consume(taken);
            if !is_whole && !is_over {
                continue;
            }
            let (kept, bytes) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.bytes));
            if bytes > self.bytes_max {
                return Ok(Some(Line::TooLong { bytes }));
            }
            let text = String::from_utf8_lossy(&kept);
            let text = text.trim();
            if !text.is_empty() {
                return Ok(Some(Line::Text(text.to_owned())));
            }
            if is_over {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &str, bytes_max: usize) -> Vec<Line> {
        let mut lines = Lines {
            from: tokio::io::BufReader::with_capacity(3, text.as_bytes()),
            bytes_max,
            kept: Vec::new(),
            bytes: 0,
        };
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        found
    }

    #[tokio::test]
    async fn lines_are_read_whole_and_empty_ones_are_skipped() {
        let text = |text: &str| Line::Text(text.to_owned());
        assert_eq!(
            all("one\n\n  \r\ntwo\r\nthree", 100).await,
            [text("one"), text("two"), text("three")]
        );
    }

    #[tokio::test]
    async fn a_line_at_the_bound_is_kept_and_one_past_it_is_skipped() {
        assert_eq!(
            all("12345\n123456\nok\n", 5).await,
            [
                Line::Text("12345".to_owned()),
                Line::TooLong { bytes: 6 },
                Line::Text("ok".to_owned())
            ]
        );
    }
}
