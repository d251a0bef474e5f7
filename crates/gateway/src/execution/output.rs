//! What is kept of a stream: all of it up to a limit, beyond that its head and its tail.
//!
//! Memory stays bounded by the limit however much a command writes. Offsets count bytes of the
//! original stream, so a page means the same thing while the command still runs.

use std::collections::VecDeque;

/// One stream's output so far.
#[derive(Clone, Debug)]
pub struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    // INVARIANT: head.len() <= head_max, tail.len() <= tail_max, tail is empty until head is full.
    head_max: usize,
    tail_max: usize,
}

/// Output as text for a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rendered {
    pub text: String,
    /// Some bytes of the middle were left out.
    pub truncated: bool,
    /// Some bytes were not UTF-8 and stand as the replacement character.
    pub lossy: bool,
}

/// A piece of the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub bytes: Vec<u8>,
    /// Where the page starts; later than asked for when that part was left out.
    pub offset: u64,
    /// Where to read on, if there is more.
    pub next: Option<u64>,
}

impl Output {
    pub fn with_limit(bytes: usize) -> Self {
        let tail_max = bytes / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            head_max: bytes - tail_max,
            tail_max,
        }
    }

    /// Takes up an output that was kept earlier: its head, its tail and its full length.
    pub fn restored(head: Vec<u8>, tail: Vec<u8>, total: u64) -> Self {
        let (head_max, tail_max) = (head.len(), tail.len());
        Self {
            head,
            tail: tail.into(),
            total,
            head_max,
            tail_max,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = (self.head_max - self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.tail_max)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Bytes written by the command, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn left_out(&self) -> u64 {
        self.total - self.head.len() as u64 - self.tail.len() as u64
    }

    pub fn head(&self) -> &[u8] {
        &self.head
    }

    pub fn tail(&self) -> Vec<u8> {
        self.tail.iter().copied().collect()
    }

    pub fn render(&self) -> Rendered {
        let left_out = self.left_out();
        let mut bytes = Vec::with_capacity(self.head.len() + self.tail.len() + 64);
        bytes.extend_from_slice(&self.head);
        if left_out > 0 {
            bytes.extend_from_slice(format!("\n[... {left_out} bytes left out ...]\n").as_bytes());
        }
        bytes.extend(&self.tail);
        let (text, lossy) = text(bytes);
        Rendered {
            text,
            truncated: left_out > 0,
            lossy,
        }
    }

    /// At most `limit` bytes from `offset` on.
    pub fn page(&self, offset: u64, limit: u64) -> Page {
        let head_end = self.head.len() as u64;
        let tail_start = self.total - self.tail.len() as u64;
        let (offset, part): (u64, Vec<u8>) = if offset < head_end {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            (
                offset,
                self.head[start..].iter().take(bounded(limit)).copied().collect(),
            )
        } else {
            let offset = offset.clamp(tail_start, self.total);
            let skip = bounded(offset - tail_start);
            (
                offset,
                self.tail.iter().skip(skip).take(bounded(limit)).copied().collect(),
            )
        };
        let end = offset + part.len() as u64;
        Page {
            bytes: part,
            offset,
            next: (end < self.total).then_some(end),
        }
    }
}

/// Bytes as text, and whether some had to be replaced.
pub fn text(bytes: Vec<u8>) -> (String, bool) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    }
}

fn bounded(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut output = Output::with_limit(10);
        output.push(b"hello\n");
        assert_eq!(
            output.render(),
            Rendered {
                text: "hello\n".into(),
                truncated: false,
                lossy: false
            }
        );
    }

    #[test]
    fn long_output_keeps_head_and_tail_and_says_what_is_missing() {
        let mut output = Output::with_limit(4);
        output.push(b"abcdefgh");
        let kept = output.render();
        assert_eq!(kept.text, "ab\n[... 4 bytes left out ...]\ngh");
        assert!(kept.truncated);
        assert_eq!(output.total(), 8);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced_and_flagged() {
        let mut output = Output::with_limit(10);
        output.push(b"a\xffb");
        assert_eq!(
            output.render(),
            Rendered {
                text: "a\u{fffd}b".into(),
                truncated: false,
                lossy: true
            }
        );
    }

    #[test]
    fn a_page_in_the_missing_middle_starts_at_the_tail() {
        let mut output = Output::with_limit(4);
        output.push(b"abcdefgh");
        assert_eq!(
            output.page(0, 1),
            Page {
                bytes: b"a".to_vec(),
                offset: 0,
                next: Some(1)
            }
        );
        assert_eq!(
            output.page(3, 10),
            Page {
                bytes: b"gh".to_vec(),
                offset: 6,
                next: None
            }
        );
        assert_eq!(
            output.page(100, 10),
            Page {
                bytes: vec![],
                offset: 8,
                next: None
            }
        );
    }

    proptest! {
        #[test]
        fn however_it_arrives_the_same_bytes_are_kept(chunks: Vec<Vec<u8>>, limit in 0usize..64) {
            let all: Vec<u8> = chunks.concat();
            let mut output = Output::with_limit(limit);
            for chunk in &chunks {
                output.push(chunk);
            }
            prop_assert_eq!(output.total(), all.len() as u64);
            prop_assert!(all.starts_with(output.head()));
            prop_assert!(all.ends_with(&output.tail()));
            let kept = output.head().len() + output.tail().len();
            prop_assert_eq!(kept, all.len().min(limit));
        }

        #[test]
        fn pages_read_one_after_another_give_what_is_kept(bytes: Vec<u8>, limit in 0usize..64, step in 1u64..16) {
            let mut output = Output::with_limit(limit);
            output.push(&bytes);
            let mut read = Vec::new();
            let mut next = Some(0);
            while let Some(offset) = next {
                let page = output.page(offset, step);
                if page.bytes.is_empty() { break; }
                read.extend(page.bytes);
                next = page.next;
            }
            prop_assert_eq!(read, [output.head().to_vec(), output.tail()].concat());
        }
    }
}
