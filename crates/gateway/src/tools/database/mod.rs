//! `database.lifecycle`: a project's databases on a PostgreSQL server.
//!
//! What a project owns is written down before it is made and until after it is gone ([`keeping`]), and the
//! database itself carries a mark from the moment it has its name. So whatever a crash leaves can be told
//! apart: what is ours is finished or cleared away, what is not is never touched ([`lifecycle`]).

pub mod keeping;
mod lifecycle;
pub mod schema;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::control;
use crate::approval::ClearedAct;
use crate::audit::{Pending, Record};
use crate::catalog::arguments::Arguments;
use crate::catalog::definition::ToolDefinition;
use crate::clock::Clock;
use crate::error::{ErrorCode, Refusal};
use crate::ids::IdSource;
use crate::job::lifecycle::words;
use crate::tools::acts::{Act, Asked, Toolbox};
use keeping::{DatabaseServer, Databases};

words! {
    /// What is wanted of a database.
    DatabaseAction {
        Create "create",
        Delete "delete",
        Describe "describe",
    }
}

/// What the tool is made of.
pub struct DatabaseParts {
    pub server: Arc<dyn DatabaseServer>,
    pub databases: Arc<dyn Databases>,
    pub record: Arc<dyn Record>,
    pub clock: Clock,
    pub ids: IdSource,
    /// The environments that databases may be for.
    pub environments: Vec<String>,
}

pub struct DatabaseTool {
    parts: Arc<DatabaseParts>,
}

impl DatabaseTool {
    pub fn new(parts: DatabaseParts) -> Arc<Self> {
        Arc::new(Self { parts: Arc::new(parts) })
    }
}

impl Toolbox for DatabaseTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![schema::definition(&self.parts.environments)]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let mut arguments = Arguments::new(&asked.call.arguments);
        let environment = arguments.string("environment");
        let words: Vec<_> = DatabaseAction::ALL.iter().map(|it| (it.as_str(), *it)).collect();
        let given = asked.call.arguments.contains_key("action");
        let action = arguments.optional_word("action", &words);
        if !given {
            arguments.problem("`action` is missing".to_owned());
        }
        let name = arguments.string("database_name");
        let is_confirmed = arguments.optional_flag("confirm_delete").unwrap_or(false);
        let dry_run = arguments.optional_flag("dry_run").unwrap_or(false);
        if !name.is_empty() && !is_name(&name) {
            arguments.problem(format!("`database_name` must match `{}`", schema::DATABASE_NAME));
        }
        arguments.finish()?;
        let wanted = Wanted {
            project: control::project(asked),
            environment,
            // Missing, it was a problem.
            action: action.unwrap_or(DatabaseAction::Describe),
            name,
            dry_run,
        };
        if !self.parts.environments.contains(&wanted.environment) {
            let known = self.parts.environments.join("`, `");
            let message = format!(
                "no databases are kept for the environment `{}`; `environment` must be one of `{known}`",
                wanted.environment
            );
            return Err(Refusal::new(ErrorCode::PolicyDenied, message));
        }
        if wanted.action == DatabaseAction::Delete && !is_confirmed {
            let message = "deleting a database cannot be undone: say `confirm_delete: true`";
            return Err(Refusal::new(ErrorCode::InvalidArguments, message));
        }
        Ok(Box::new(Lifecycle {
            parts: self.parts.clone(),
            wanted,
        }))
    }

    fn repair(&self) -> Pending<()> {
        let parts = self.parts.clone();
        Box::pin(async move { parts.repair_all().await })
    }
}

/// A checked call.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted {
    project: String,
    environment: String,
    action: DatabaseAction,
    name: String,
    dry_run: bool,
}

struct Lifecycle {
    parts: Arc<DatabaseParts>,
    wanted: Wanted,
}

impl Act for Lifecycle {
    fn action(&self) -> Option<&str> {
        Some(self.wanted.action.as_str())
    }

    fn only_looks(&self) -> bool {
        self.wanted.action == DatabaseAction::Describe
    }

    fn details(&self) -> Map<String, Value> {
        let wanted = &self.wanted;
        let act = format!(
            "{} database {} of {} in {}",
            wanted.action.as_str(),
            wanted.name,
            wanted.project,
            wanted.environment
        );
        Map::from_iter([
            ("command".to_owned(), json!(act)),
            ("action".to_owned(), json!(wanted.action.as_str())),
            ("database_name".to_owned(), json!(wanted.name)),
            ("project_id".to_owned(), json!(wanted.project)),
            ("environment".to_owned(), json!(wanted.environment)),
        ])
    }

    fn foresee(&self) -> Pending<Result<Option<Map<String, Value>>, Refusal>> {
        let (parts, wanted) = (self.parts.clone(), self.wanted.clone());
        Box::pin(async move { parts.foresee(&wanted).await })
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move { self.parts.perform(&self.wanted, &cleared).await })
    }
}

/// The pattern that clients are shown.
fn is_name(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.len() <= 63 && text.starts_with(begins) && text.chars().all(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_the_pattern_says() {
        let long = "a".repeat(63);
        for good in ["a", "_x", "shop_dev-1", long.as_str()] {
            assert!(is_name(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "1a", "-a", "a b", "a;b", "a\"b", "é", "a.b", "a\n", long.as_str()] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
