//! What can be typed after `tokens` and `sessions`: who may come, and who came.

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub(crate) enum Tokens {
    /// Make a token and print it, this once.
    #[command(after_help = "Example:\n  countersign tokens create --role agent --name laptop")]
    Create {
        /// What its bearer may do: agents call tools, operators besides decide, approvers decide, viewers read.
        #[arg(long, value_name = "R", value_parser = ["agent", "operator", "approver", "viewer"])]
        role: String,
        /// Whose it is, as the record will say.
        #[arg(long, value_name = "N")]
        name: String,
        /// The run whose agent it is for, and with which it ends; then it also ends by itself.
        #[arg(long, value_name = "RUN_ID")]
        run: Option<String>,
        /// How long a run's token lasts, such as `90m` or `24h`; a day when left out, a week at most.
        #[arg(long, value_name = "TIME", requires = "run")]
        expires_in: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the address of the running server's console with a code that lets one browser in, once.
    Login {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List tokens, revoked ones too, without the tokens themselves.
    List {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token; running servers know within a second.
    Revoke {
        /// Its id or its name.
        #[arg(value_name = "ID|NAME")]
        token: String,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum Sessions {
    /// List sessions, the newest last; ended ones are kept as long as the record.
    #[command(after_help = "Example:\n  countersign sessions list --state initialized")]
    List {
        /// Only in this state.
        #[arg(long, value_name = "S", value_parser = ["created", "initialized", "closed", "expired"])]
        state: Option<String>,
        /// At most this many, the latest.
        #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1000)]
        limit: u32,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
}
