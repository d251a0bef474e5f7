//! Policy: what may run. Pure and synchronous: the machine is seen through ports only, so a decision
//! can be explained without running anything. Absence denies; the strictest answer wins.

#[macro_use]
mod words;

pub mod acts;
pub mod again;
pub mod agents;
pub mod decide;
pub mod explain;
pub mod plan;
mod planning;
mod remembered;
pub mod sought;
mod talk;

pub mod line;

pub mod allowlist;

pub mod interpreters;
pub mod standing;
pub mod whitelist;

pub mod places;

pub mod actor;
pub mod approvers;
pub mod matrix;
pub mod merge;
pub mod tools;

pub mod content;
pub mod effective;
pub mod quantity;
