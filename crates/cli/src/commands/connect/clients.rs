//! The table of clients: where each keeps its servers, and how it wants them written.
//!
//! A new client is a variant of `cli::Client`, an arm here, and a line in the guide. What is here was
//! checked against the clients' documentation, Claude Code 2.1.325 and Codex 0.166.0.

use std::path::PathBuf;

use super::json::Dialect;
use crate::cli::{Client, Scope};
use crate::config::Surroundings;
use crate::start::BadUsage;

/// What we know about a client.
pub(super) struct Profile {
    /// As it is typed.
    pub(super) word: &'static str,
    /// As people call it.
    pub(super) title: &'static str,
    pub(super) syntax: Syntax,
    /// The table of servers in the file.
    pub(super) section: &'static str,
    user: (Base, &'static str),
    /// In the project's directory.
    project: Option<&'static str>,
    pub(super) entries: Entries,
    pub(super) urls: Urls,
    pub(super) afterwards: &'static str,
    /// What to do about the shell that it has already.
    pub(super) own_tools: Option<&'static str>,
}

#[derive(Clone, Copy)]
pub(super) enum Syntax {
    Json(Dialect),
    Toml,
}

/// The directory that a user's file is in.
enum Base {
    Home,
    /// Of desktop programs.
    Configuration,
    /// Named by the client's own variable, else below the home directory.
    Variable(&'static str, &'static str),
}

/// Whether an entry says what kind it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entries {
    Typed,
    Untyped,
}

/// How the client names a server that runs already.
#[derive(Clone, Copy)]
pub(super) enum Urls {
    /// Not in its file.
    None,
    /// With headers, in which this is the value of our variable.
    Header(&'static str),
    /// With the name of the variable that holds the token.
    TokenVariable,
}

pub(super) fn profile(client: Client) -> Profile {
    match client {
        Client::ClaudeCode => Profile {
            word: "claude-code",
            title: "Claude Code",
            syntax: Syntax::Json(Dialect::Strict),
            section: "mcpServers",
            user: (Base::Variable("CLAUDE_CONFIG_DIR", ""), ".claude.json"),
            project: Some(".mcp.json"),
            entries: Entries::Typed,
            urls: Urls::Header("${COUNTERSIGN_TOKEN}"),
            afterwards: "sessions that start from now on have it; `claude mcp list` shows it",
            own_tools: Some(
                "`countersign connect claude-code --governed` puts it and its edits under the same policy, or deny `Bash`, \
                 `Edit`, `Write`, `NotebookEdit` and `WebFetch` in its settings",
            ),
        },
        Client::ClaudeDesktop => Profile {
            word: "claude-desktop",
            title: "Claude Desktop",
            syntax: Syntax::Json(Dialect::Strict),
            section: "mcpServers",
            user: (Base::Configuration, "Claude/claude_desktop_config.json"),
            project: None,
            entries: Entries::Untyped,
            urls: Urls::None,
            afterwards: "quit Claude Desktop and start it again; it starts servers outside of any project, so name \
                         `workspace_root` in Countersign's configuration",
            own_tools: None,
        },
        Client::Codex => Profile {
            word: "codex",
            title: "Codex",
            syntax: Syntax::Toml,
            section: "mcp_servers",
            user: (Base::Variable("CODEX_HOME", ".codex"), "config.toml"),
            project: Some(".codex/config.toml"),
            entries: Entries::Untyped,
            urls: Urls::TokenVariable,
            afterwards: "sessions that start from now on have it; `codex mcp list` shows it",
            own_tools: Some("`shell_tool = false` under `[features]` in its file switches it off"),
        },
        Client::Cursor => Profile {
            word: "cursor",
            title: "Cursor",
            syntax: Syntax::Json(Dialect::Commented),
            section: "mcpServers",
            user: (Base::Home, ".cursor/mcp.json"),
            project: Some(".cursor/mcp.json"),
            entries: Entries::Untyped,
            urls: Urls::Header("${env:COUNTERSIGN_TOKEN}"),
            afterwards: "restart Cursor and turn the server on in its settings",
            own_tools: Some("its settings say what it may run by itself"),
        },
        Client::Vscode => Profile {
            word: "vscode",
            title: "VS Code",
            syntax: Syntax::Json(Dialect::Commented),
            section: "servers",
            user: (Base::Configuration, "Code/User/mcp.json"),
            project: Some(".vscode/mcp.json"),
            entries: Entries::Typed,
            urls: Urls::Header("${env:COUNTERSIGN_TOKEN}"),
            afterwards: "start the server by VS Code's command `MCP: List Servers`",
            own_tools: Some("choose the tools of its chats without those that run and edit"),
        },
    }
}

impl Profile {
    /// The file that the entry belongs in, whether it exists or not.
    pub(super) fn file(&self, scope: Scope, surroundings: &Surroundings) -> Result<PathBuf, BadUsage> {
        match scope {
            Scope::User => {
                let (base, name) = &self.user;
                let dir = base.directory(surroundings).ok_or_else(|| {
                    BadUsage(format!(
                        "there is no home directory to find {}'s file in; set `HOME`",
                        self.title
                    ))
                })?;
                Ok(surroundings.current_dir.join(dir).join(name))
            }
            Scope::Project => self
                .project
                .map(|name| surroundings.current_dir.join(name))
                .ok_or_else(|| {
                    BadUsage(format!(
                        "{} has no files of projects; leave `--scope project` out",
                        self.title
                    ))
                }),
        }
    }
}

impl Base {
    fn directory(&self, surroundings: &Surroundings) -> Option<PathBuf> {
        let home = surroundings.home.clone();
        match self {
            Self::Home => home,
            Self::Configuration if cfg!(target_os = "macos") => {
                home.map(|home| home.join("Library/Application Support"))
            }
            Self::Configuration => surroundings.user_config_dir(),
            Self::Variable(variable, below) => surroundings
                .variable(variable)
                .map(PathBuf::from)
                .or_else(|| home.map(|home| home.join(below))),
        }
    }
}
