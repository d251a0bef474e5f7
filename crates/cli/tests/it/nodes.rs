//! Several nodes on one PostgreSQL, as clients and operators meet them: the real binary, killed, frozen and cut off
//! from its database.

mod commands;
mod deployed;
mod faults;
mod field;
mod github;
mod jobs;
mod lost;
mod modern;
mod people;
mod sessions;
mod streams;
mod timers;
mod upgrades;
