//! Several nodes on one PostgreSQL, as clients and operators meet them: the real binary, killed, frozen and cut off
//! from its database.

mod faults;
mod field;
mod jobs;
mod sessions;
mod streams;
mod timers;
mod upgrades;
