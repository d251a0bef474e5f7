//! The first process of a container. Whatever loses its parent there becomes a child of number 1, and stays as a zombie
//! until that waits for it. A server has children of its own and cannot wait for just any; so where it would be number 1,
//! it goes on as another, and number 1 does nothing but wait.

use std::io;

use crate::launch::Outcome;
use crate::sys;
use crate::sys::process::{
    Patience, Side, Waited, block_signals, exit_now, fork_threaded, next_signal, signal, unblock_signals, wait_for,
};

/// To be called before everything else. Only the process that goes on comes back from it.
pub fn step_aside() -> io::Result<()> {
    if std::process::id() != 1 {
        return Ok(());
    }
    // What is sent in between is kept until somebody looks.
    block_signals()?;
    match fork_threaded()? {
        Side::Child => {
            unblock_signals();
            Ok(())
        }
        Side::Parent { child } => wait_for_all(child),
    }
}

/// Waits for every child, passes on what is sent to number 1, and ends as the server does.
fn wait_for_all(server: i32) -> ! {
    sys::set_name(c"cs-first");
    // Whoever speaks to the server must see the end of its streams when it closes them.
    let _ = sys::null_streams();
    loop {
        while let Ok(Waited::Ended(ended)) = wait_for(-1, Patience::Look) {
            if ended.pid == server {
                exit_now(match ended.outcome {
                    Outcome::Code(code) => code,
                    Outcome::Signal(number) => 128 + number,
                });
            }
        }
        // What a terminal sends goes to everybody there by itself.
        if let Ok(Some(sent)) = next_signal() {
            signal(server, sent);
        }
    }
}
