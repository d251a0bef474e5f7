//! The witness at an address: it is sent each signed checkpoint, one a request, in the order they were signed.
//!
//! The record waits for nobody. A checkpoint that does not arrive is sent again, with growing pauses, while this
//! process lives; one that the witness will not have for what it is gives way to the next, which covers it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use countersign_integrations::http::{Dialer, Endpoint};
use countersign_store::checkpoint::Checkpoint;
use countersign_store::witness::{Courier, WitnessAt};

/// Checkpoints on their way. What does not fit stays with the record.
const ON_THEIR_WAY_MAX: usize = 1_000;
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_SHORT: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a process that ends stays for what is on its way.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// The witness that the settings name: an address, or else a file.
pub(crate) fn at(named: &str) -> WitnessAt {
    match Endpoint::parse(named) {
        Ok(endpoint) => WitnessAt::Elsewhere(Arc::new(Post::to(endpoint))),
        Err(_) => WitnessAt::File(named.into()),
    }
}

/// Sends from a thread of its own, which begins with the first checkpoint.
struct Post {
    endpoint: Endpoint,
    is_closing: Arc<AtomicBool>,
    round: Mutex<Option<Round>>,
}

struct Round {
    queue: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Post {
    fn to(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            is_closing: Arc::default(),
            round: Mutex::default(),
        }
    }

    fn begin(&self) -> io::Result<Round> {
        let (queue, letters) = sync_channel(ON_THEIR_WAY_MAX);
        let (endpoint, is_closing) = (self.endpoint.clone(), self.is_closing.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name("witness".to_owned())
            .spawn(move || runtime.block_on(carry(&endpoint, &letters, &is_closing)))?;
        Ok(Round { queue, thread })
    }
}

impl Courier for Post {
    fn take(&self, checkpoints: &[Checkpoint]) -> io::Result<()> {
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let Round { queue, .. } = match &mut *round {
            Some(round) => round,
            None => round.insert(self.begin()?),
        };
        for checkpoint in checkpoints {
            let letter = checkpoint.to_json().to_string().into_bytes();
            // What was taken before it arrives twice, which says nothing new.
            queue
                .try_send(letter)
                .map_err(|_| io::Error::other("too many checkpoints are on their way"))?;
        }
        Ok(())
    }
}

impl Drop for Post {
    /// The last checkpoint is signed when the record is closed: it gets its chance, and no more than that.
    fn drop(&mut self) {
        let round = self.round.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(Round { queue, thread }) = round.take() else {
            return;
        };
        self.is_closing.store(true, Ordering::Relaxed);
        drop(queue);
        let deadline = Instant::now() + LAST_PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

async fn carry(endpoint: &Endpoint, letters: &Receiver<Vec<u8>>, is_closing: &AtomicBool) {
    let dialer = Dialer::default();
    for letter in letters {
        let mut pause = PAUSE_FIRST;
        while let Err(problem) = deliver(&dialer, endpoint, letter.clone()).await {
            tracing::warn!(problem = problem.why, "the witness was not told");
            if problem.is_of_the_letter {
                break;
            }
            rest(pause, is_closing).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

struct Undelivered {
    why: String,
    /// Another attempt with the same letter would end the same way.
    is_of_the_letter: bool,
}

async fn deliver(dialer: &Dialer, endpoint: &Endpoint, letter: Vec<u8>) -> Result<(), Undelivered> {
    let reply = dialer.post(endpoint, &[], letter, PATIENCE).await;
    let status = match reply {
        Ok(reply) if reply.status.is_success() => return Ok(()),
        Ok(reply) => reply.status,
        Err(error) => {
            return Err(Undelivered {
                why: error.to_string(),
                is_of_the_letter: false,
            });
        }
    };
    Err(Undelivered {
        why: format!("it answered {status}"),
        is_of_the_letter: matches!(status.as_u16(), 400 | 409 | 413 | 422),
    })
}

/// A pause that ends early when the process does, which then leaves no time for long ones.
async fn rest(pause: Duration, is_closing: &AtomicBool) {
    let until = tokio::time::Instant::now() + pause;
    loop {
        tokio::time::sleep(PAUSE_SHORT).await;
        if tokio::time::Instant::now() >= until || is_closing.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// What a witness is told that answers each letter with a status of its own.
    fn told(answers: &'static [(&str, &str)]) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let witness = std::thread::spawn(move || {
            let hear = |status: &str| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut heard = String::new();
                while !heard.ends_with('.') {
                    let mut some = [0; 512];
                    let read = stream.read(&mut some).unwrap();
                    heard.push_str(std::str::from_utf8(&some[..read]).unwrap());
                }
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                )
                .unwrap();
                heard.rsplit("\r\n").next().unwrap().to_owned()
            };
            answers.iter().map(|(_, status)| hear(status)).collect()
        });
        let (queue, letters) = sync_channel(9);
        for (letter, _) in answers {
            queue.send(letter.as_bytes().to_vec()).unwrap();
        }
        drop(queue);
        let endpoint = Endpoint::parse(&format!("http://{address}/told")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(carry(&endpoint, &letters, &AtomicBool::new(true)));
        witness.join().unwrap()
    }

    #[test]
    fn a_letter_that_the_witness_will_not_have_gives_way_to_the_next() {
        let answers = &[("first.", "422 Unprocessable Content"), ("second.", "204 No Content")];
        assert_eq!(told(answers), ["first.", "second."]);
    }
}
