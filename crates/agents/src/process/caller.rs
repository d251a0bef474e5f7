//! Who is at the other end of a connection on this machine: whether an agent of a job may be.
//!
//! The kernel tells which user a socket belongs to and by what number processes hold it. An agent cannot become another
//! user, so sockets of others are none of its. Of its own user's, one that nobody is seen to hold may well be an agent's:
//! it may have sent what it had to say and gone, or keep the socket where no table of descriptors shows it.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::mark::{self, Stat};
use super::tree;

/// The tables of connections. A program may speak to an old address by a new socket, so both are looked into.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// How often a connection is looked for: a table is read piece by piece while others come and go, and one look may miss it.
const LOOKS: usize = 3;

/// Whether whoever connected from `there` to us at `here` may be an agent, or something that one started. Where that cannot
/// be looked at, it may.
pub fn may_be_an_agent(there: SocketAddr, here: SocketAddr) -> bool {
    let Ok(agents) = tree::of_any_job() else {
        return true;
    };
    if agents.is_empty() {
        return false;
    }
    // Before the socket is looked for: one that has ended by then does not hold it.
    let users: Vec<(u32, Option<u32>)> = agents
        .into_keys()
        .map(|agent| (agent, user_of(agent)))
        .filter(|(agent, user)| user.is_some() || !mark::has_ended(*agent))
        .collect();
    let Some(socket) = (0..LOOKS).find_map(|_| Socket::find(there, here)) else {
        return true;
    };
    let of_its_user: Vec<u32> = users
        .into_iter()
        .filter(|(_, user)| user.is_none_or(|user| user == socket.user))
        .map(|(agent, _)| agent)
        .collect();
    if of_its_user.is_empty() {
        return false;
    }
    for agent in &of_its_user {
        match socket.is_held_by(*agent) {
            Ok(false) => {}
            // Nobody may look at the descriptors of one that has ended, and it holds none.
            Err(_) if mark::has_ended(*agent) => {}
            Ok(true) | Err(_) => return true,
        }
    }
    let Ok(everybody) = Stat::all() else {
        return true;
    };
    let others = everybody.into_iter().map(|stat| stat.pid);
    let mut others = others.filter(|pid| !of_its_user.contains(pid));
    !others.any(|other| matches!(socket.is_held_by(other), Ok(true)))
}

/// The other end of a connection.
struct Socket {
    user: u32,
    /// What a descriptor of it is a link to.
    link: PathBuf,
}

impl Socket {
    fn find(there: SocketAddr, here: SocketAddr) -> Option<Socket> {
        TABLES
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .find_map(|table| Socket::read(&table, there, here))
    }

    /// Looks for a connection in a table. A socket that its program has closed has no number any more.
    fn read(table: &str, there: SocketAddr, here: SocketAddr) -> Option<Socket> {
        table.lines().skip(1).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = address(fields.get(1)?)? == canonical(there) && address(fields.get(2)?)? == canonical(here);
            let number: u64 = fields.get(9)?.parse().ok()?;
            (is_it && number != 0).then_some(Socket {
                user: fields.get(7)?.parse().ok()?,
                link: PathBuf::from(format!("socket:[{number}]")),
            })
        })
    }

    fn is_held_by(&self, pid: u32) -> io::Result<bool> {
        for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
            // One that was closed meanwhile is nobody's.
            if fs::read_link(descriptor?.path()).is_ok_and(|link| link == self.link) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// An address as the kernel writes it: words in the machine's order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(host.get(at * 8..at * 8 + 8)?, 16).ok();
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip: IpAddr = match host.len() {
        8 => IpAddr::from(word(0)?.to_ne_bytes()),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whom a process makes files and sockets as.
pub(crate) fn user_of(pid: u32) -> Option<u32> {
    let status = mark::told(pid, "status").ok()?;
    let status = String::from_utf8_lossy(&status);
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_found_by_both_its_ends_whatever_socket_it_is_made_by() {
        for place in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(place) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let host = if place == "[::]:0" {
                "127.0.0.1"
            } else {
                place.trim_end_matches(":0")
            };
            let client = TcpStream::connect(format!("{host}:{port}")).unwrap();
            let (server, there) = listener.accept().unwrap();
            let here = server.local_addr().unwrap();
            let socket = Socket::find(there, here).unwrap();
            assert!(socket.is_held_by(std::process::id()).unwrap(), "{place}");
            assert_eq!(Some(socket.user), user_of(std::process::id()));
            assert!(Socket::find(there, SocketAddr::new(here.ip(), 1)).is_none());
            drop(client);
            assert!(Socket::find(there, here).is_none(), "{place}: it is nobody's any more");
        }
    }
}
