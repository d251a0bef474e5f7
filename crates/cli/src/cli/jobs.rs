//! What can be typed after `jobs`.

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub(crate) enum Jobs {
    /// Give an agent a task; the running server looks after it.
    #[command(after_help = "Example:\n  countersign jobs start --agent codex -f 'make the tests pass'")]
    Start(JobStart),
    /// List jobs, the newest last.
    List {
        /// Only in this state.
        #[arg(long, value_name = "S", value_parser = ["pending", "running", "completed", "failed", "cancelled",
            "timeout"])]
        status: Option<String>,
        /// At most this many, the latest.
        #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show one job: how it stands, where, what its agent said last and what it used.
    Show {
        /// Its id, or as much of the beginning as names it.
        id: String,
        /// Go on with what happens until the job has ended, and say how it came out.
        #[arg(short, long, conflicts_with = "json")]
        follow: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what happened in a job, oldest first.
    Logs {
        /// Its id, or as much of the beginning as names it.
        id: String,
        /// Go on until the job has ended.
        #[arg(short, long)]
        follow: bool,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Say something to a job's agent: into the turn that runs, or as the next one.
    Send {
        /// The job's id, or as much of the beginning as names it.
        id: String,
        /// What to say.
        message: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Call a job back: its turn ends, with everything that it started.
    Interrupt {
        /// Its id, or as much of the beginning as names it.
        id: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct JobStart {
    /// Which agent does it; the first that is configured or found when left out.
    #[arg(long, value_name = "A")]
    pub(crate) agent: Option<String>,
    /// What its session is called.
    #[arg(long, value_name = "N")]
    pub(crate) name: Option<String>,
    /// Where to work; the workspace when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Which model; the agent's own choice when left out.
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// Ends the job after this time; waiting for people does not count.
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// When the agent asks; another mode than policy's may itself need approval.
    #[arg(long, value_name = "MODE", value_parser = ["untrusted", "on-request", "on-failure", "never"])]
    pub(crate) mode: Option<String>,
    /// How far the agent may reach; more than policy gives needs approval.
    #[arg(long, value_name = "S", value_parser = ["read-only", "workspace-write", "danger-full-access"])]
    pub(crate) sandbox: Option<String>,
    /// Print what happens until the job has ended; the exit code is 1 unless it was completed.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) follow: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// What to do.
    pub(crate) prompt: String,
}
