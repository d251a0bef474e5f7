//! Policy: what may run. Pure and synchronous: the machine is seen through ports only, so a decision
//! can be explained without running anything. Absence denies; the strictest answer wins.

pub mod again;
pub mod decide;
pub mod plan;
mod planning;

pub mod line;

pub mod allowlist;

pub mod whitelist;

pub mod places;

pub mod effective;
pub mod quantity;
