//! What is kept of a stream: all of it up to a limit, beyond that its head and its tail. A character that the cut goes
//! through is left out with the middle: a text that is UTF-8 stays so.
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

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.head.capacity() + self.tail.capacity()
    }

    /// Bytes between what is shown of its head and of its tail.
    pub fn left_out(&self) -> u64 {
        self.tail_start() - self.head().len() as u64
    }

    /// Bytes that are still here.
    pub fn kept(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    pub fn head(&self) -> &[u8] {
        match self.is_cut() {
            true => &self.head[..whole_characters(&self.head)],
            false => &self.head,
        }
    }

    pub fn tail(&self) -> Vec<u8> {
        self.tail_shown().copied().collect()
    }

    fn tail_shown(&self) -> impl Iterator<Item = &u8> {
        self.tail.range(self.tail_skipped()..)
    }

    /// Where in the stream the tail begins, as far as it is shown.
    fn tail_start(&self) -> u64 {
        self.total - (self.tail.len() - self.tail_skipped()) as u64
    }

    /// Bytes of a character whose beginning was left out.
    fn tail_skipped(&self) -> usize {
        let inside = self.tail.iter().take(3).take_while(|byte| continues(**byte)).count();
        if self.is_cut() { inside } else { 0 }
    }

    fn is_cut(&self) -> bool {
        self.total > self.kept() as u64
    }

    pub fn render(&self) -> Rendered {
        let left_out = self.left_out();
        let mut bytes = Vec::with_capacity(self.head.len() + self.tail.len() + 64);
        bytes.extend_from_slice(self.head());
        if left_out > 0 {
            bytes.extend_from_slice(format!("\n[... {left_out} bytes left out ...]\n").as_bytes());
        }
        bytes.extend(self.tail_shown());
        let (text, lossy) = text(bytes);
        Rendered {
            text,
            truncated: left_out > 0,
            lossy,
        }
    }

    /// Whether some bytes of what is shown are not UTF-8.
    pub fn is_lossy(&self) -> bool {
        let (tail, wrapped) = self.tail.as_slices();
        match self.is_cut() {
            false => !are_utf8([&self.head, tail, wrapped]),
            true => {
                let skipped = self.tail_skipped();
                let wrapped = &wrapped[skipped.saturating_sub(tail.len())..];
                let tail = tail.get(skipped..).unwrap_or_default();
                !are_utf8([self.head()]) || !are_utf8([tail, wrapped])
            }
        }
    }

    /// At most `limit` bytes from `offset` on. A character that goes over the end of the page is left to the next one,
    /// unless it is the whole page: whoever reads page after page reads every character.
    pub fn page(&self, offset: u64, limit: u64) -> Page {
        let shown = self.head();
        let head_end = shown.len() as u64;
        let tail_start = self.tail_start();
        let offset = match offset < head_end {
            true => offset,
            false => offset.clamp(tail_start, self.total),
        };
        let head = shown.get(bounded(offset)..).unwrap_or_default();
        let skip = bounded(offset.saturating_sub(tail_start));
        let is_joined = head.is_empty() || !self.is_cut();
        let tail = self
            .tail_shown()
            .skip(skip)
            .take(if is_joined { usize::MAX } else { 0 });
        let mut rest = head.iter().chain(tail).copied();
        let mut bytes: Vec<u8> = rest.by_ref().take(bounded(limit)).collect();
        if rest.next().is_some_and(continues) {
            match whole_characters(&bytes) {
                0 => {}
                whole => bytes.truncate(whole),
            }
        }
        let end = offset + bytes.len() as u64;
        Page {
            bytes,
            offset,
            next: (end < self.total).then_some(end),
        }
    }
}

/// A byte inside of a character.
fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes there are without a character at their end that goes on behind them.
pub(super) fn whole_characters(bytes: &[u8]) -> usize {
    // The longest character has four bytes, of which three may be here.
    let inside = bytes.iter().rev().take(3).take_while(|byte| continues(**byte)).count();
    let first = bytes.len().saturating_sub(inside + 1);
    let needed = match bytes.get(first) {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        Some(_) | None => 0,
    };
    match needed > bytes.len() - first {
        true => first,
        false => bytes.len(),
    }
}

/// Whether pieces of a text are UTF-8 when they are put together.
fn are_utf8<const N: usize>(pieces: [&[u8]; N]) -> bool {
    // The first bytes of a character that goes on in the next piece.
    let mut begun = Vec::new();
    for mut piece in pieces {
        while !begun.is_empty() && piece.first().is_some_and(|byte| continues(*byte)) {
            begun.push(piece[0]);
            piece = &piece[1..];
            match std::str::from_utf8(&begun) {
                Ok(_) => begun.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return false,
            }
        }
        match std::str::from_utf8(piece) {
            _ if !begun.is_empty() && !piece.is_empty() => return false,
            Ok(_) => {}
            Err(error) if error.error_len().is_none() => begun.extend(&piece[error.valid_up_to()..]),
            Err(_) => return false,
        }
    }
    begun.is_empty()
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

    #[test]
    fn a_page_ends_with_a_whole_character() {
        let text = "aé€😀\u{7ff}z".repeat(3);
        for (kept, step) in [(64, 4), (64, 5), (20, 4), (21, 6), (64, 7)] {
            let mut output = Output::with_limit(kept);
            output.push(text.as_bytes());
            let whole = output.left_out() == 0;
            let (mut read, mut next) = (String::new(), Some(0));
            while let Some(offset) = next {
                let page = output.page(offset, step);
                read += &String::from_utf8_lossy(&page.bytes);
                next = page.next;
            }
            assert_eq!(read == text, whole, "{kept}, {step}: {read}");
        }
        let mut output = Output::with_limit(64);
        output.push("é".as_bytes());
        assert_eq!(
            output.page(0, 1).next,
            Some(1),
            "a page without room for one goes on all the same"
        );
        output.push(b"\xe2\x82\xe2\x82");
        assert_eq!(
            output.page(2, 2).bytes,
            b"\xe2\x82",
            "what is no character is not waited for"
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
            let shown = output.head().len() + output.tail().len();
            prop_assert_eq!(output.left_out(), (all.len() - shown) as u64);
            prop_assert_eq!(output.kept(), all.len().min(limit));
            // No more of a character is left out on each side of the cut than it can have there.
            let hidden_max = if all.len() > limit { 6 } else { 0 };
            prop_assert!(output.kept() - shown <= hidden_max);
        }

        #[test]
        fn text_stays_text_wherever_it_is_cut(text in "[a\u{e9}\u{20ac}\u{1f600}]{0,40}", limit in 0usize..48, step in 1u64..12) {
            let mut output = Output::with_limit(limit);
            output.push(text.as_bytes());
            let shown = output.render();
            prop_assert!(!shown.lossy && !shown.text.contains('\u{fffd}'), "{}", shown.text);
            prop_assert_eq!(shown.truncated, text.len() > limit);
            let mut next = Some(0);
            while let Some(offset) = next {
                let page = output.page(offset, step.max(4));
                prop_assert!(std::str::from_utf8(&page.bytes).is_ok(), "{offset}: {:?}", page.bytes);
                next = page.next.filter(|_| !page.bytes.is_empty());
            }
        }

        #[test]
        fn it_is_known_without_a_text_whether_one_would_be_lossy(bytes in proptest::collection::vec(proptest::sample::select(&b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff"[..]), 0..24), limit in 0usize..24) {
            let mut output = Output::with_limit(limit);
            output.push(&bytes);
            // Rendered as the two texts that they are.
            let lossy = match output.left_out() {
                0 => std::str::from_utf8(&bytes).is_err(),
                _ => std::str::from_utf8(output.head()).is_err() || std::str::from_utf8(&output.tail()).is_err(),
            };
            prop_assert_eq!(output.is_lossy(), lossy);
            prop_assert_eq!(output.render().lossy, lossy);
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
