//! What can be typed after `runs`.

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub(crate) enum Runs {
    /// Set a run off; the running server gives it its turn.
    #[command(
        after_help = "Example:\n  countersign runs start --repository acme/shop --issue 12 --label run:dev 'make the tests pass'"
    )]
    Start(RunStart),
    /// List runs, the newest first.
    List {
        /// Only in this state.
        #[arg(long, value_name = "S", value_parser = ["pending", "running", "succeeded", "failed", "cancelled"])]
        status: Option<String>,
        /// Only of this repository.
        #[arg(long, value_name = "OWNER/NAME")]
        repository: Option<String>,
        /// Only for this issue.
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        issue: Option<u64>,
        /// Only for this pull request.
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        pull_request: Option<u64>,
        /// At most this many.
        #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show one run: how it stands, its clock, and what it belongs to.
    Show {
        /// Its id, or as much of the beginning as names it.
        id: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Call a run back; its job ends with it.
    Cancel {
        /// Its id, or as much of the beginning as names it.
        id: String,
        /// Why, as the record will say.
        #[arg(long, value_name = "R", default_value = "called back at the terminal")]
        reason: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print which runs worked on which issue, as Markdown.
    Map {
        /// Only of this repository.
        #[arg(long, value_name = "OWNER/NAME")]
        repository: Option<String>,
        /// Print the same as a JSON array.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RunStart {
    /// The repository that it works on.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) repository: Option<String>,
    /// The issue that it is for.
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) issue: Option<u64>,
    /// The pull request that it is for.
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) pull_request: Option<u64>,
    /// The `run:*` label whose policy it is under.
    #[arg(long, value_name = "L")]
    pub(crate) label: Option<String>,
    /// Another label of its issue; may be repeated.
    #[arg(long = "with-label", value_name = "L")]
    pub(crate) labels: Vec<String>,
    /// The project; the one that holds the repository when left out.
    #[arg(long, value_name = "P")]
    pub(crate) project: Option<String>,
    /// Whose work it is; what policy or custom says of the label when left out.
    #[arg(long, value_name = "K")]
    pub(crate) agent_key: Option<String>,
    /// What its agent is given; what policy says of the label when left out, else the code only.
    #[arg(long, value_name = "R", value_parser = ["full-env", "code-only"])]
    pub(crate) runtime: Option<String>,
    /// The namespace of the cluster; the project's when left out.
    #[arg(long, value_name = "NS")]
    pub(crate) namespace: Option<String>,
    /// What it is about, in a few words.
    #[arg(long, value_name = "T")]
    pub(crate) title: Option<String>,
    /// Ends the run after this time; waiting for people does not count.
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// What is asked for.
    pub(crate) instructions: Option<String>,
}
