//! The command tools: `execute_command`, `execute_process`, `run_command`, and `command_status` and
//! `command_cancel` for those that go on.
//!
//! All three ways of asking become one [`request::CommandRequest`]; all answers are one
//! [`result::CommandResult`].

pub mod glimpse;
pub mod request;
pub mod result;
pub mod schema;
pub mod yaml;
