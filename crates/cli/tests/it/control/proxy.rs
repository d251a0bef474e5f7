//! A line to PostgreSQL that goes dead at a chosen statement, before the server hears it or when it is done.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::postgres::Database;

/// When the line goes dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dead {
    /// The server never hears the statement.
    Before,
    /// The statement is done, and nobody is told.
    Behind,
}

pub(super) struct Proxy {
    /// The database's address, by way of the proxy.
    pub(super) url: String,
    trap: Arc<Mutex<Trap>>,
}

#[derive(Default)]
struct Trap {
    /// Waits for the beginning of a statement.
    set: Option<(String, Dead)>,
    has_sprung: bool,
}

impl Proxy {
    pub(super) fn to(database: &Database) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let (head, rest) = database.url.split_once('@').unwrap();
        let (server, name) = rest.split_once('/').unwrap();
        let (url, server) = (format!("{head}@{own}/{name}"), server.to_owned());
        let trap = Arc::new(Mutex::new(Trap::default()));
        let kept = trap.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&server).unwrap();
                let kept = kept.clone();
                std::thread::spawn(move || carry(client, server, &kept));
            }
        });
        Self { url, trap }
    }

    /// The line goes dead at the next statement that begins so.
    pub(super) fn dies_at(&self, statement: &str, when: Dead) {
        *self.trap.lock().unwrap() = Trap {
            set: Some((statement.to_owned(), when)),
            has_sprung: false,
        };
    }

    pub(super) fn is_dead(&self) -> bool {
        self.trap.lock().unwrap().has_sprung
    }
}

fn carry(mut client: TcpStream, mut server: TcpStream, trap: &Mutex<Trap>) {
    let (mut to_client, mut from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let muted = Arc::new(Mutex::new(None::<std::sync::mpsc::Sender<()>>));
    let heard = muted.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            if let Some(done) = heard.lock().unwrap().take() {
                let _ = done.send(());
                return;
            }
            if to_client.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        let sent = &buffer[..count];
        let sprung = {
            let mut trap = trap.lock().unwrap();
            // A plain statement: the letter Q, four bytes of length, the text.
            let hit = trap.set.as_ref().is_some_and(|(statement, _)| {
                sent.first() == Some(&b'Q') && sent.get(5..).is_some_and(|text| text.starts_with(statement.as_bytes()))
            });
            hit.then(|| trap.set.take()).flatten()
        };
        match sprung {
            None => {
                if server.write_all(sent).is_err() {
                    return;
                }
            }
            Some((_, when)) => {
                if when == Dead::Behind {
                    let (sender, done) = std::sync::mpsc::channel();
                    *muted.lock().unwrap() = Some(sender);
                    server.write_all(sent).unwrap();
                    done.recv().unwrap();
                }
                trap.lock().unwrap().has_sprung = true;
                // Until whoever waits at the other end is gone.
                let _ = client.read(&mut buffer);
                let _ = server.shutdown(Shutdown::Both);
                return;
            }
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
