//! Leases: a name that one holder has for a while, in any process of the same store.
//!
//! They are taken and given back through the record, in the transaction of what they are for. One that its
//! holder does not give back ends by itself.

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
        now: Timestamp,
        time: Duration,
    },
    /// Of a lease that somebody else has taken meanwhile it says nothing.
    Return { name: String, holder: String },
}
