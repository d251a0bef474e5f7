//! A terminal that a test types on and looks at.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: Receiver<String>,
    seen: String,
}

impl Terminal {
    /// The binary with these words on a terminal of its own; its exit code is printed at the end.
    pub(crate) fn run(stage: &Stage, words: &str, more: &[(&str, &str)]) -> Self {
        let inner = stage.command(&[]);
        let line = format!("{} {words}; echo code=$?", inner.get_program().to_str().unwrap());
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .envs(more.iter().copied())
            .env("SHELL", "/bin/sh")
            .current_dir(stage.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = script.spawn().unwrap();
        let keys = script.stdin.take().unwrap();
        let mut stdout = script.stdout.take().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                let _ = sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
            }
        });
        Self {
            script,
            keys,
            screen,
            seen: String::new(),
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .and_then(|()| self.keys.flush())
            .unwrap();
    }

    /// Waits until something is shown that was not there before; gives what was shown up to it.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(what) {
                return self.seen.drain(..at + what.len()).collect();
            }
            match self.screen.recv_timeout(PATIENCE) {
                Ok(more) => self.seen.push_str(&more),
                Err(_) => panic!("no `{what}`: {}", self.seen),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
