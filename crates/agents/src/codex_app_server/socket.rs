//! WebSocket messages over a unix socket, as much of it as the app-server needs: text both ways, pings
//! answered, long messages in pieces.
//!
//! The other side is a process that we started, on a socket in a directory that only its user can enter, so
//! the handshake proves nothing and is only spoken.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The longest message that is taken: a whole conversation, when one is taken up again.
const MESSAGE_BYTES_MAX: u64 = 256 << 20;
const HEAD_BYTES_MAX: usize = 16 << 10;

const CONTINUED: u8 = 0x0;
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

pub(super) struct Reader {
    from: BufReader<OwnedReadHalf>,
    /// Of a message that comes in pieces; a ping may come between them.
    pieces: Vec<u8>,
}

pub(super) struct Writer {
    to: OwnedWriteHalf,
}

/// What was read.
pub(super) enum Message {
    Text(String),
    /// To be sent back.
    Ping(Vec<u8>),
}

pub(super) async fn connect(path: &Path) -> io::Result<(Reader, Writer)> {
    let mut stream = UnixStream::connect(path).await?;
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: Y291bnRlcnNpZ24gYWdlbnQ=\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("the answer to the handshake has no end"));
        }
        head.push(stream.read_u8().await?);
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        let first: String = String::from_utf8_lossy(&head)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        return Err(io::Error::other(format!("the handshake was refused: {first}")));
    }
    let (from, to) = stream.into_split();
    Ok((Reader::new(from), Writer { to }))
}

impl Reader {
    fn new(from: OwnedReadHalf) -> Reader {
        Reader {
            from: BufReader::new(from),
            pieces: Vec::new(),
        }
    }

    /// The next message; none when the other side has closed.
    pub(super) async fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            let first = match self.from.read_u8().await {
                Ok(first) => first,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            };
            let (is_last, kind) = (first & 0x80 != 0, first & 0x0f);
            let length = match self.from.read_u8().await? & 0x7f {
                126 => u64::from(self.from.read_u16().await?),
                127 => self.from.read_u64().await?,
                length => u64::from(length),
            };
            if length.saturating_add(self.pieces.len() as u64) > MESSAGE_BYTES_MAX {
                return Err(io::Error::other(format!("a message of {length} bytes is too long")));
            }
            let mut part = vec![0; length as usize];
            self.from.read_exact(&mut part).await?;
            match kind {
                TEXT | CONTINUED if self.pieces.is_empty() => self.pieces = part,
                TEXT | CONTINUED => self.pieces.extend(part),
                PING => return Ok(Some(Message::Ping(part))),
                CLOSE => return Ok(None),
                _ => continue,
            }
            if is_last {
                let whole = std::mem::take(&mut self.pieces);
                let text = String::from_utf8(whole);
                return Ok(Some(Message::Text(text.unwrap_or_else(|broken| {
                    String::from_utf8_lossy(broken.as_bytes()).into_owned()
                }))));
            }
        }
    }
}

impl Writer {
    pub(super) async fn text(&mut self, text: &str) -> io::Result<()> {
        self.frame(TEXT, text.as_bytes()).await
    }

    pub(super) async fn pong(&mut self, content: &[u8]) -> io::Result<()> {
        self.frame(PONG, content).await
    }

    async fn frame(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        self.to.write_all(&frame(kind, content)).await
    }
}

/// A whole message in one frame. Clients must mask; a mask of zeroes is one, and hides nothing from nobody.
fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    const MASKED: u8 = 0x80;
    let mut frame = vec![0x80 | kind];
    match content.len() {
        length @ 0..=125 => frame.push(MASKED | length as u8),
        length @ 126..=0xffff => {
            frame.push(MASKED | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(MASKED | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(content);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written unmasked is what a server would write.
    fn served(kind: u8, is_last: bool, content: &[u8]) -> Vec<u8> {
        let mut bytes = frame(kind, content);
        let head = bytes.len() - content.len();
        bytes.drain(head - 4..head);
        bytes[1] &= 0x7f;
        bytes[0] = if is_last { 0x80 | kind } else { kind };
        bytes
    }

    async fn read(bytes: Vec<u8>) -> Vec<String> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut reader = Reader::new(ours.into_split().0);
        tokio::spawn(async move { theirs.write_all(&bytes).await });
        let mut found = Vec::new();
        while let Ok(Some(message)) = reader.next().await {
            found.push(match message {
                Message::Text(text) => text,
                Message::Ping(content) => format!("ping {}", content.len()),
            });
        }
        found
    }

    #[tokio::test]
    async fn messages_of_every_length_and_in_pieces_are_read() {
        let long = "x".repeat(70_000);
        let mut bytes = served(TEXT, true, b"short");
        bytes.extend(served(TEXT, true, "y".repeat(300).as_bytes()));
        bytes.extend(served(TEXT, true, long.as_bytes()));
        bytes.extend(served(TEXT, false, b"one "));
        bytes.extend(served(CONTINUED, true, b"two"));
        bytes.extend(served(PING, true, b"abc"));
        bytes.extend(served(CLOSE, true, b""));
        bytes.extend(served(TEXT, true, b"after the end"));
        assert_eq!(
            read(bytes).await,
            [
                "short".to_owned(),
                "y".repeat(300),
                long,
                "one two".to_owned(),
                "ping 3".to_owned()
            ]
        );
    }

    #[tokio::test]
    async fn a_ping_between_the_pieces_of_a_message_takes_nothing_from_it() {
        let mut bytes = served(TEXT, false, b"one ");
        bytes.extend(served(PING, true, b"abc"));
        bytes.extend(served(CONTINUED, true, b"two"));
        assert_eq!(read(bytes).await, ["ping 3".to_owned(), "one two".to_owned()]);
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_refused_before_it_is_kept() {
        for length in [MESSAGE_BYTES_MAX + 1, u64::MAX] {
            let mut bytes = served(TEXT, true, b"before");
            bytes.extend(served(TEXT, false, b"piece"));
            bytes.extend([0x80 | CONTINUED, 127]);
            bytes.extend(length.to_be_bytes());
            assert_eq!(read(bytes).await, ["before"]);
        }
    }
}
