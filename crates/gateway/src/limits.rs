//! Every bound of the gateway, by name. A bound that users may set is a default here and a key in
//! the configuration.

use std::time::Duration;

/// Output kept of each stream, head and tail together (`output_limit_bytes`).
pub const OUTPUT_BYTES_DEFAULT: usize = 1 << 20;
/// A call that is not streamed answers within this time (`answer_within_ms`).
pub const ANSWER_WITHIN_DEFAULT: Duration = Duration::from_millis(45_000);
/// The longest a `command_status` call may wait.
pub const STATUS_WAIT_MAX: Duration = Duration::from_millis(45_000);
/// Longest wait for a person that a caller of `approval_prompt` may ask for.
pub const PROMPT_WAIT_MAX: Duration = Duration::from_secs(3_600);
/// The longest page of output one `command_status` returns.
pub const OUTPUT_PAGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a shell line.
pub const LINE_BYTES_MAX: usize = 128 << 10;
/// Bytes of one argument, as the kernel allows (`MAX_ARG_STRLEN`, less the final NUL).
pub const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;
/// Bytes of all arguments and the environment together.
pub const ARGUMENTS_BYTES_MAX: usize = 1 << 20;
/// Arguments of one call.
pub const ARGUMENTS_MAX: usize = 16_384;
/// Bytes of `input`.
pub const INPUT_BYTES_MAX: usize = 8 << 20;
/// Variables in a call's `env`.
pub const ENVIRONMENT_MAX: usize = 256;
/// Characters of a justification.
pub const JUSTIFICATION_CHARS_MAX: usize = 2_000;
/// The longest directory; the kernel's own bound.
pub const DIRECTORY_BYTES_MAX: usize = 4096;
/// The longest name a caller claims.
pub const CALLER_CHARS_MAX: usize = 256;
/// Mistakes in one call that are told one by one, and how long each may be.
pub const PROBLEMS_TOLD_MAX: usize = 16;
pub const PROBLEM_CHARS_MAX: usize = 400;
/// What is kept of a refused message: characters of its method and of the refusal, bytes of its parameters.
pub const REFUSED_TEXT_CHARS_MAX: usize = 512;
pub const REFUSED_PARAMS_BYTES_MAX: usize = 4096;
/// Characters of a name, as a client sent it, that a refusal repeats.
pub const NAME_CHARS_ECHOED: usize = 200;
/// Characters shown of a tool's name that nobody checked, and of a client's id of a request.
pub const TOOL_NAME_CHARS_SHOWN: usize = 128;
pub const RPC_ID_CHARS_SHOWN: usize = 256;
/// Arguments of a call without a command that are kept, and how long the name and the value of one may be.
pub const ARGUMENTS_SHOWN_MAX: usize = 64;
pub const ARGUMENT_NAME_CHARS_SHOWN: usize = 64;
pub const ARGUMENT_BYTES_SHOWN: usize = 512;
/// Levels that are kept of what a client nested.
pub const LEVELS_SHOWN_MAX: usize = 32;
/// The longest id of a request that a session knows again after a restart.
pub const RPC_ID_BYTES_REMEMBERED: usize = 1_024;
/// What is kept of a client's own name and version, and of what it says it can do.
pub const CLIENT_CHARS_MAX: usize = 256;
pub const CAPABILITIES_BYTES_MAX: usize = 4096;
/// Requests of a session that are known again after a restart.
pub const REQUESTS_REMEMBERED: usize = 1_024;
/// Sessions that expire, or are touched, in one go.
pub const SESSIONS_AT_ONCE: usize = 256;
/// Calls that run or wait at once, beyond which the answer is `QUEUE_FULL`.
pub const CALLS_IN_FLIGHT_MAX: usize = 256;
/// Commands that run at once; more wait their turn.
pub const COMMANDS_RUNNING_MAX: usize = 64;
/// Ended commands whose unredacted output is kept in memory for `command_status`, and the bytes of all of them. The
/// record tells of those beyond.
pub const ENDED_COMMANDS_KEPT: usize = 256;
pub const ENDED_BYTES_KEPT: usize = 8 << 20;
/// Output of both streams up to which an answer takes no room, and how much of it may be put into words at once, by all
/// calls. Words take twenty times as much where each byte must be escaped, twice; what waits for room waits as bytes.
pub const ANSWER_BYTES_SHORT: usize = 4 << 10;
pub const ANSWERS_BYTES_MAX: usize = 4 << 20;
/// Output of both streams up to which secrets are taken out of it on the thread that serves everybody; more is left to
/// threads of its own, of which so many work at once.
pub const REDACTED_AT_ONCE_BYTES: usize = 64 << 10;
pub const REDACTING_THREADS_MAX: usize = 2;
/// Calls that were refused for want of a record and are looked after, in case they were written all the same. Those
/// beyond are closed by whoever sweeps once this process is gone.
pub const UNSURE_RECORDS_MAX: usize = 1_024;
/// How long closing the record is tried again before the caller hears `AUDIT_UNAVAILABLE`.
pub const RECORD_CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// Time between TERM and KILL.
pub const TERMINATE_GRACE: Duration = Duration::from_millis(500);
/// Time between two progress messages while a call is silent.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks at a question that nobody was heard to decide.
pub const DECISION_POLL: Duration = Duration::from_millis(500);
/// How long an approval that was given stays good for the call it was given for.
pub const APPROVAL_USABLE_FOR: Duration = Duration::from_secs(24 * 3_600);
/// How long a denial is the answer to the same call of a tool that is no command; later it asks anew.
pub const DENIAL_TOLD_FOR: Duration = Duration::from_secs(10 * 60);
/// By when a token that was made elsewhere is certainly known here.
pub const TOKENS_KNOWN_WITHIN: Duration = Duration::from_secs(2);
/// Questions of one credential that may be open at once, beyond which the answer is `QUEUE_FULL`.
pub const QUESTIONS_OPEN_MAX: usize = 256;
/// Characters of a reason for a decision.
pub const REASON_CHARS_MAX: usize = 2_000;
/// Characters of a question that is about no act, and of each of its answers.
pub const QUESTION_CHARS_MAX: usize = 2_000;
pub const ANSWER_CHARS_MAX: usize = 300;
/// Characters shown of what a command is given on standard input, and of one variable.
pub const INPUT_CHARS_SHOWN: usize = 2_000;
pub const VARIABLE_CHARS_SHOWN: usize = 200;
/// Questions that expire, or are listed, in one go.
pub const APPROVALS_AT_ONCE: usize = 256;
/// Open questions that a server which starts asks its approvers again.
pub const QUESTIONS_ASKED_AGAIN_MAX: usize = 4_096;
/// Characters of a name that a callback gives whoever decided, and bytes kept of what else it says.
pub const ACTOR_CHARS_MAX: usize = 128;
pub const METADATA_BYTES_KEPT: usize = 4_096;
/// Times a decision is tried again when others decide the same question at that moment.
pub const DECISION_TRIES_MAX: usize = 1_000;
/// How long a job may work when it does not say (S1: one hour), and at most.
pub const JOB_TIMEOUT_DEFAULT: Duration = Duration::from_millis(3_600_000);
pub const JOB_TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How long an agent may say nothing at all before its turn counts as hung.
pub const JOB_IDLE_MAX: Duration = Duration::from_secs(15 * 60);
/// Bytes of a prompt or a message to an agent, and parts of one message.
pub const PROMPT_BYTES_MAX: usize = 1 << 20;
pub const MESSAGE_PARTS_MAX: usize = 64;
/// Characters of a session's name, less what makes it unique.
pub const SESSION_NAME_CHARS_MAX: usize = 64;
/// Sessions of one name on one day.
pub const SESSIONS_OF_A_NAME_MAX: usize = 10_000;
/// Rules that a task brings.
pub const TASK_RULES_MAX: usize = 256;
/// Characters shown of one file that an agent wants to change (S1).
pub const PREVIEW_CHARS_MAX: usize = 500;
/// Files of one patch that are shown one by one.
pub const FILES_SHOWN_MAX: usize = 200;
/// Bytes kept of one thing that an agent said; the rest is cut, and said to be.
pub const AGENT_EVENT_BYTES_MAX: usize = 256 << 10;
/// What one report of an agent may add to the tokens and dollars of its job: a sum of millions of them can still be kept.
pub const TOKENS_REPORTED_MAX: u64 = 1 << 40;
pub const DOLLARS_REPORTED_MAX: f64 = 1e9;
/// Bytes of a job's result.
pub const JOB_RESULT_BYTES_MAX: usize = 1 << 20;
/// Jobs that wait or run, of one caller and in all, beyond which the answer is `QUEUE_FULL`.
pub const JOBS_OPEN_PER_CALLER_MAX: usize = 256;
/// Times that a job is tried again after a failure that may pass, the first pause before
/// it, and the pause before an agent that died for the first time is started again.
pub const JOB_RETRIES_MAX: u32 = 3;
pub const JOB_RETRY_PAUSE: Duration = Duration::from_secs(2);
pub const JOB_RESTART_PAUSE: Duration = Duration::from_millis(200);
pub const JOB_RETRY_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// How long a job rests when its agent's limit is reached and nobody said until when.
pub const JOB_LIMIT_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Time between two signs of life of whoever looks after a job, and how long none means death.
pub const JOB_BEAT_EVERY: Duration = Duration::from_secs(10);
pub const JOB_BEAT_MISSED: Duration = Duration::from_secs(60);
/// Time between two summaries of a session that is at work; each is written at its end as well.
pub const METRICS_EVERY: Duration = Duration::from_secs(3_600);
/// Jobs, or events of one, that are read in one go.
pub const JOBS_AT_ONCE: usize = 256;
pub const JOB_EVENTS_AT_ONCE: usize = 1_000;
/// How much of a message is shown while it is written, and how often at most.
pub const UNFINISHED_BYTES_MAX: usize = 64 << 10;
/// As much of its end is told to a caller who waits.
pub const UNFINISHED_CHARS_TOLD: usize = 200;
pub const UNFINISHED_EVERY: Duration = Duration::from_millis(250);
/// Commands of a job that are remembered to have failed, and how long one may be for that.
pub const FAILURES_REMEMBERED_MAX: usize = 1_000;
pub const FAILURE_BYTES_MAX: usize = 64 << 10;
/// How long an agent may take to end a turn that was interrupted before its conversation is stopped.
pub const INTERRUPT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a run may work when nobody says, and at most.
pub const RUN_TIME_DEFAULT: Duration = Duration::from_secs(4 * 3_600);
pub const RUN_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How long a run's token is good for, and at most.
pub const RUN_TOKEN_TIME_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
pub const RUN_TOKEN_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Runs that are read in one go.
pub const RUNS_AT_ONCE: usize = 256;
/// Characters of what a run is about, and of what is asked of it.
pub const RUN_TITLE_CHARS_MAX: usize = 300;
pub const RUN_INSTRUCTIONS_CHARS_MAX: usize = 100_000;
/// Characters of what an agent says of its run.
pub const RUN_STATUS_CHARS_MAX: usize = 100;
/// Bytes of `owner/name`.
pub const REPOSITORY_BYTES_MAX: usize = 140;
