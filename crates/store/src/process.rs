//! Which process left a command open, and whether it still lives.
//!
//! A process id alone comes back; together with the boot and the moment the process started it does
//! not. Processes that share a state directory must see each other's ids (one pid namespace).

use std::fs;

/// A process, as stored beside its open commands: `BOOT/PID/START`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process(String);

impl Process {
    pub fn current() -> Self {
        let pid = std::process::id();
        let start = state_and_start(pid).map_or(0, |(_, start)| start);
        Self(format!("{}/{pid}/{start}", boot()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Unreadable text names nobody, so nobody lives.
    pub fn is_alive(stored: &str) -> bool {
        let mut parts = stored.split('/');
        let (Some(then), Some(pid), Some(start)) = (parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else {
            return false;
        };
        then == boot()
            && state_and_start(pid).is_some_and(|(state, since)| since == start && !matches!(state, 'Z' | 'X'))
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Fields 3 and 22 of `/proc/PID/stat`, counted after the name, which may hold anything.
fn state_and_start(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_ends_and_its_id_alone_proves_nothing() {
        let me = Process::current();
        assert!(Process::is_alive(me.as_str()));
        let (place, start) = me.as_str().rsplit_once('/').unwrap();
        let later = start.parse::<u64>().unwrap() + 1;
        assert!(!Process::is_alive(&format!("{place}/{later}")));
        let (_, rest) = me.as_str().split_once('/').unwrap();
        assert!(!Process::is_alive(&format!("another-boot/{rest}")));
        assert!(!Process::is_alive("nonsense"));
    }
}
