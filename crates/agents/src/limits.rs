//! Every bound of the drivers, by name.

use std::time::Duration;

/// The longest line or message that is taken from an agent; what is longer is skipped with a warning.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// What is put together of a message that comes in pieces. More than is kept of one, so that it is seen to be cut.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// What is remembered of the acts of a turn that are not over, and how much each counts for at least.
pub const REMEMBERED_BYTES_MAX: usize = 32 << 20;
pub const REMEMBERED_BYTES_EACH: usize = 256;

/// The longest argument that Linux hands to a program, less the byte that ends it.
pub const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;

/// How much of what an agent wrote to its error stream is kept for the reason of its end.
pub const STDERR_BYTES_KEPT: usize = 8 << 10;

/// How long an agent may take to answer a request of ours that starts no work.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long an agent may take to begin listening.
pub const LISTEN_WAIT: Duration = Duration::from_secs(30);

/// How long a probe waits for a version.
pub const PROBE_WAIT: Duration = Duration::from_secs(20);

/// How long a turn may take to end after it was asked to by its protocol.
pub const PROTOCOL_GRACE: Duration = Duration::from_secs(5);

/// How long a process may take to end after an interrupt; the slowest agent that was measured took 1.6 s.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(4);

/// How long a tree may take to end after it was told to terminate.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// How long killing a tree may take before it is given up and said so. Only the kernel can be that slow.
pub const KILL_WAIT: Duration = Duration::from_secs(10);

/// Events that an agent's reader may be ahead of whoever is told of them.
pub const NOTIFICATIONS_AHEAD: usize = 1024;

/// How often a turn that ended is looked at again while commands of it still run in the background.
pub const LEFTOVER_LOOK: Duration = Duration::from_millis(500);
