//! Who is ended first when the memory of a cgroup runs out: the command, never its keeper, which sits in there
//! too. A hint to the kernel; the limit holds without it.
//!
//! A process inherits its standing from whoever starts it. So the keeper takes on the command's for as long as
//! it starts one: two writes to a file that it has open, where a child that changed its own would have to
//! open one that exists for its sake alone.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;

const FILE: &str = "/proc/self/oom_score_adj";
const OF_COMMANDS: i32 = 500;

pub(super) struct Standing {
    file: File,
    own: i32,
}

impl Standing {
    /// The standing of the calling process.
    pub(super) fn open() -> Option<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(FILE).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let own = text.trim().parse().ok()?;
        (own < OF_COMMANDS).then_some(Self { file, own })
    }

    /// From here on whoever is started is ended before us.
    pub(super) fn lower(&self) {
        self.set(OF_COMMANDS);
    }

    pub(super) fn restore(&self) {
        self.set(self.own);
    }

    fn set(&self, standing: i32) {
        let _ = self.file.write_at(standing.to_string().as_bytes(), 0);
    }
}
