//! Leases: a name that one holder has for a while, in any process of the same store.
//!
//! They are taken and given back through the record, in the transaction of what they are for. One that its
//! holder does not give back ends by itself. So a holder may lose it without noticing, when its machine sleeps: what it
//! then writes, it writes over [`LeaseChange::Has`]. A holder is a name that nobody else has, on no machine.

use std::time::Duration;

use crate::clock::Timestamp;

/// A lease that is taken or given back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseChange {
    /// Refused with [`crate::audit::RecordError::LeaseTaken`] while somebody else has it. Its holder may take it again, to
    /// have it longer.
    Take {
        name: String,
        holder: String,
        /// The holder's clock. Nodes that share a database go by the database's instead.
        now: Timestamp,
        time: Duration,
    },
    /// Refused in the same way where its holder lost it, to somebody who has it or has had it since. One whose time is
    /// over and that nobody else took is still its holder's.
    Has { name: String, holder: String },
    /// Of a lease that somebody else has taken meanwhile it says nothing.
    Return { name: String, holder: String },
}
