//! What can be typed after `connect`.

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct Connect {
    /// The client.
    pub(crate) client: Client,
    /// Edit the client's file; otherwise it is only printed what belongs there.
    #[arg(long)]
    pub(crate) write: bool,
    /// For claude-code: let it ask before it uses its own shell, edits files or fetches pages, by a hook in its
    /// settings, instead of naming the server.
    #[arg(long, conflicts_with_all = ["http", "url", "no_token", "with_token", "name", "force"])]
    pub(crate) governed: bool,
    /// Let the client reach a running server by HTTP instead of starting its own.
    #[arg(long)]
    pub(crate) http: bool,
    /// Where that server is; implies `--http` [default: where `serve` listens, path `/mcp`].
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// With `--http`: send no token, for a server that takes agents without one; so it is for our own on this machine.
    #[arg(long)]
    pub(crate) no_token: bool,
    /// With `--http`: send a token, so that the record says who it was, also where none is needed.
    #[arg(long, conflicts_with = "no_token")]
    pub(crate) with_token: bool,
    /// What the client calls the server.
    #[arg(long, value_name = "NAME", default_value = "countersign")]
    pub(crate) name: String,
    /// The client's file for this user, or the one of the project in the current directory.
    #[arg(long, default_value = "user")]
    pub(crate) scope: Scope,
    /// With `--write`: replace an entry of that name that is not ours.
    #[arg(long, requires = "write")]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    ClaudeCode,
    ClaudeDesktop,
    Codex,
    Cursor,
    Vscode,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    User,
    Project,
}
