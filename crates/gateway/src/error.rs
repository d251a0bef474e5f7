//! The error table: one row per code, from which answers, documentation and tests are made.
//!
//! A [`Refusal`] is what a station says when a call goes no further: a code of the table, a sentence
//! for the agent (what was wrong, what to try), and details for programs.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::ids::CorrelationId;
use crate::limits;

/// How a code reaches the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Surface {
    /// A JSON-RPC error.
    Protocol,
    /// A tool result with `isError`, and the status its structured content carries.
    Tool(Status),
}

/// S0's result status, with the two states of a call that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Status {
    Ok,
    Rejected,
    Timeout,
    Failed,
    Running,
    Pending,
}

impl Status {
    pub const ALL: [Self; 6] = [
        Self::Ok,
        Self::Rejected,
        Self::Timeout,
        Self::Failed,
        Self::Running,
        Self::Pending,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Pending => "pending",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether a tool result with this status is an error to the client.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Ok | Self::Running)
    }
}

/// Stands in the details of a failure where there is no such program.
pub const PROGRAM_MISSING: &str = "program_missing";
/// What a person can do about it.
pub const ADVICE: &str = "advice";

macro_rules! table {
    ($($code:ident $name:literal $rpc:literal $retry:ident $surface:expr, $template:literal;)*) => {
        /// Every code a client can meet.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum ErrorCode { $($code,)* }

        impl ErrorCode {
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// The stable name, as in `error_code`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }
            pub fn json_rpc(self) -> i32 {
                match self { $(Self::$code => $rpc,)* }
            }
            pub fn retryable(self) -> bool {
                match self { $(Self::$code => table!(@$retry),)* }
            }
            pub fn surface(self) -> Surface {
                match self { $(Self::$code => $surface,)* }
            }
            /// What the code means, in general.
            pub fn template(self) -> &'static str {
                match self { $(Self::$code => $template,)* }
            }
        }
    };
    (@retry) => { true };
    (@final) => { false };
}

use Status::{Failed, Pending, Rejected, Timeout};
use Surface::{Protocol, Tool};

table! {
    ParseError "PARSE_ERROR" -32700 final Protocol, "the message is not valid JSON";
    InvalidRequest "INVALID_REQUEST" -32600 final Protocol, "the message is not a valid request";
    DuplicateRequest "DUPLICATE_REQUEST" -32600 final Protocol, "this request id is already used for another request";
    MethodNotFound "METHOD_NOT_FOUND" -32601 final Protocol, "the method does not exist here";
    InvalidParams "INVALID_PARAMS" -32602 final Protocol, "the parameters do not fit the method";
    UnknownTool "UNKNOWN_TOOL" -32602 final Protocol, "there is no such tool";
    InternalError "INTERNAL_ERROR" -32603 retry Protocol, "something went wrong on our side";
    Unauthenticated "UNAUTHENTICATED" -32001 final Protocol, "a valid token is needed";
    Forbidden "FORBIDDEN" -32003 final Protocol, "this credential may not do that";
    SessionNotInitialized "SESSION_NOT_INITIALIZED" -32002 retry Protocol, "the session has not been initialized";
    SessionNotFound "SESSION_NOT_FOUND" -32004 retry Protocol, "there is no such session";
    SessionExpired "SESSION_EXPIRED" -32004 retry Protocol, "the session has expired";
    InvalidArguments "INVALID_ARGUMENTS" -32602 final Tool(Rejected), "the arguments do not fit the tool's schema";
    CommandNotAllowed "COMMAND_NOT_ALLOWED" -32005 final Tool(Rejected), "the command is not on the allowlist";
    WorkspaceIsolationViolation "WORKSPACE_ISOLATION_VIOLATION" -32006 final Tool(Rejected), "the working directory is outside the workspace";
    CwdNotAllowed "CWD_NOT_ALLOWED" -32006 final Tool(Rejected), "the working directory is not allowed";
    CwdNotFound "CWD_NOT_FOUND" -32006 final Tool(Rejected), "the working directory does not exist";
    CommandTimeout "COMMAND_TIMEOUT" -32007 retry Tool(Timeout), "the command ran past its time limit and was ended";
    CommandExitNonZero "COMMAND_EXIT_NON_ZERO" -32008 final Tool(Failed), "the command ended with a non-zero status";
    CommandExecutionFailed "COMMAND_EXECUTION_FAILED" -32008 final Tool(Failed), "the command could not be started or was ended by a signal";
    MemoryLimitExceeded "MEMORY_LIMIT_EXCEEDED" -32008 final Tool(Failed), "the command used more memory than it may";
    ProcessLimitExceeded "PROCESS_LIMIT_EXCEEDED" -32008 final Tool(Failed), "the command started more processes than it may";
    CpuLimitExceeded "CPU_LIMIT_EXCEEDED" -32008 final Tool(Failed), "the command used more CPU time than it may";
    Conflict "CONFLICT" -32009 final Tool(Rejected), "the same id was used before with other content";
    QueueFull "QUEUE_FULL" -32014 retry Tool(Rejected), "too many calls are waiting";
    RateLimited "RATE_LIMITED" -32014 retry Protocol, "too many requests";
    ResourceNotFound "RESOURCE_NOT_FOUND" -32002 final Protocol, "there is no such resource";
    HeaderMismatch "HEADER_MISMATCH" -32020 final Protocol, "a header does not match the body";
    MissingClientCapability "MISSING_CLIENT_CAPABILITY" -32021 final Protocol, "the client lacks a capability this needs";
    UnsupportedProtocolVersion "UNSUPPORTED_PROTOCOL_VERSION" -32022 final Protocol, "this protocol version is not supported";
    Cancelled "CANCELLED" -32008 final Tool(Failed), "the command was cancelled";
    Abandoned "ABANDONED" -32008 final Tool(Failed), "the server stopped while the command was open";
    NotFound "NOT_FOUND" -32004 final Tool(Rejected), "nothing is known under this id";
    ApprovalDenied "APPROVAL_DENIED" -32010 final Tool(Rejected), "the act was not approved";
    ApprovalExpired "APPROVAL_EXPIRED" -32011 final Tool(Rejected), "nobody approved the act in time";
    ApprovalPending "APPROVAL_PENDING" -32012 retry Tool(Pending), "the act waits for a person";
    PolicyDenied "POLICY_DENIED" -32013 final Tool(Rejected), "policy does not allow this";
    SandboxUnavailable "SANDBOX_UNAVAILABLE" -32015 final Tool(Rejected), "a required layer of confinement is missing";
    ConfigurationError "CONFIGURATION_ERROR" -32018 final Tool(Rejected), "the server's configuration has a problem";
    LimitExceeded "LIMIT_EXCEEDED" -32019 final Tool(Rejected), "the request asks for more than the limit";
    UpstreamError "UPSTREAM_ERROR" -32016 retry Tool(Failed), "another system failed";
    AuditUnavailable "AUDIT_UNAVAILABLE" -32017 retry Tool(Rejected), "the record cannot be written, so nothing runs";
}

impl ErrorCode {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

/// A name that somebody sent, as a refusal repeats it: long enough to be known again, never as long as a
/// message may be.
pub fn brief(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(limits::NAME_CHARS_ECHOED) {
        Some((end, _)) => Cow::Owned(format!("{}…", &name[..end])),
        None => Cow::Borrowed(name),
    }
}

/// Why a call goes no further.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
    pub details: Map<String, Value>,
    /// What the record calls this refusal, where it is already in there; the client is told the same.
    /// Boxed, since refusals travel in every result.
    pub correlation_id: Option<Box<CorrelationId>>,
    /// It was done all the same, and who tries again does it twice.
    pub was_done: bool,
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Map::new(),
            correlation_id: None,
            was_done: false,
        }
    }

    /// The same of something that was done.
    #[must_use]
    pub fn of_done(self) -> Self {
        Self { was_done: true, ..self }
    }

    #[must_use]
    pub fn recorded_as(self, correlation_id: CorrelationId) -> Self {
        Self {
            correlation_id: Some(Box::new(correlation_id)),
            ..self
        }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The status a tool result of this refusal carries.
    pub fn status(&self) -> Status {
        match self.code.surface() {
            _ if self.was_done => Status::Failed,
            Surface::Tool(status) => status,
            Surface::Protocol => Status::Rejected,
        }
    }

    /// Whether the same may well be tried again.
    pub fn retryable(&self) -> bool {
        self.code.retryable() && !self.was_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_refusal_repeats_no_more_of_a_name_than_is_needed_to_know_it_again() {
        let fits = "é".repeat(limits::NAME_CHARS_ECHOED);
        assert_eq!(brief(&fits), fits);
        assert_eq!(brief(&"é".repeat(4_000_000)), fits + "…");
    }

    #[test]
    fn names_are_unique_and_codes_stay_in_their_ranges() {
        let names: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let number = code.json_rpc();
            let standard = number == -32700 || (-32603..=-32600).contains(&number);
            let ours = (-32019..=-32001).contains(&number);
            let of_the_protocol = (-32022..=-32020).contains(&number);
            assert!(standard || ours || of_the_protocol, "{} has {number}", code.name());
            assert_eq!(ErrorCode::parse(code.name()), Some(*code));
        }
    }

    /// The table of `docs/errors.md`, between its two marks.
    fn printed() -> String {
        let mut table =
            "| code | JSON-RPC | try again | reaches the client as | meaning |\n|---|---|---|---|---|\n".to_owned();
        for code in ErrorCode::ALL {
            let surface = match code.surface() {
                Surface::Protocol => "JSON-RPC error".to_owned(),
                Surface::Tool(status) => format!("tool result, status `{}`", status.as_str()),
            };
            let retry = if code.retryable() { "yes" } else { "no" };
            table += &format!(
                "| `{}` | {} | {retry} | {surface} | {} |\n",
                code.name(),
                code.json_rpc(),
                code.template()
            );
        }
        table
    }

    /// `UPDATE_DOCS=1 cargo test -p countersign-gateway the_error_page_is_up_to_date` writes the table anew.
    #[test]
    fn the_error_page_is_up_to_date() {
        const BEGIN: &str = "<!-- the table: begin -->\n";
        const END: &str = "<!-- the table: end -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (head, rest) = page.split_once(BEGIN).expect("the first mark");
        let (table, tail) = rest.split_once(END).expect("the second mark");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{head}{BEGIN}{}{END}{tail}", printed())).expect("written");
            return;
        }
        assert!(
            table == printed(),
            "docs/errors.md is out of date: run `UPDATE_DOCS=1 cargo test -p countersign-gateway the_error_page_is_up_to_date`"
        );
    }
}
