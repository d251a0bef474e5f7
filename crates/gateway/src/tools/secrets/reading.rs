//! A call, read and checked: places whose names the systems take, and a value where one is brought.

use serde_json::json;

use super::keeping::{GithubScope, SecretValue, SyncTarget, ValuePolicy, Vault};
use super::schema;
use crate::audit::chain;
use crate::catalog::arguments::Arguments;
use crate::error::{ErrorCode, Refusal};
use crate::tools::acts::Asked;
use crate::tools::control;

/// A checked call.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) project: String,
    pub(super) target: SyncTarget,
    pub(super) policy: ValuePolicy,
    pub(super) value: Option<SecretValue>,
    pub(super) idempotency_key: Option<String>,
    pub(super) dry_run: bool,
    /// Over all that is wanted.
    pub(super) digest: String,
}

impl Wanted {
    /// The place at GitHub, as a person reads it.
    pub(super) fn github_place(&self) -> String {
        let SyncTarget {
            repository,
            environment,
            github_secret,
            ..
        } = &self.target;
        match self.target.scope {
            GithubScope::Environment => format!("{repository} ({environment}) {github_secret}"),
            GithubScope::Repository => format!("{repository} {github_secret}"),
        }
    }

    /// A refusal that does not tell the value, whatever a system may have repeated.
    pub(super) fn presentable(&self, mut refusal: Refusal) -> Refusal {
        if let Some(value) = &self.value {
            refusal.message = value.hidden_in(&refusal.message);
        }
        refusal
    }
}

pub(super) fn read(asked: &Asked<'_>, vault: &dyn Vault) -> Result<Wanted, Refusal> {
    let context = asked.policy.context(asked.caller);
    let mut arguments = Arguments::new(&asked.call.arguments);
    let own = control::project(asked);
    let project = arguments.optional_string("project_id").unwrap_or_else(|| own.clone());
    let repository = arguments
        .optional_string("repository")
        .or_else(|| context.repository.map(str::to_owned));
    let namespace = arguments
        .optional_string("kubernetes_namespace")
        .or_else(|| context.namespace.map(str::to_owned));
    let scopes: Vec<_> = GithubScope::ALL.iter().map(|it| (it.as_str(), *it)).collect();
    let policies: Vec<_> = ValuePolicy::ALL.iter().map(|it| (it.as_str(), *it)).collect();
    let target = SyncTarget {
        repository: repository.unwrap_or_default(),
        environment: arguments.string("environment"),
        scope: arguments
            .optional_word("github_scope", &scopes)
            .unwrap_or(GithubScope::Environment),
        github_secret: arguments.string("github_secret_name"),
        namespace: namespace.unwrap_or_default(),
        kubernetes_secret: arguments.string("kubernetes_secret_name"),
        kubernetes_key: arguments
            .optional_string("kubernetes_secret_key")
            .unwrap_or_else(|| "value".to_owned()),
    };
    let policy = arguments
        .optional_word("policy", &policies)
        .unwrap_or(ValuePolicy::Deterministic);
    let value = arguments.optional_text("secret_value").map(SecretValue::new);
    let idempotency_key = arguments.optional_string("idempotency_key");
    let dry_run = arguments.optional_flag("dry_run").unwrap_or(false);
    check_places(&target, &mut arguments);
    match (policy, &value) {
        (ValuePolicy::Provided, None) => arguments.problem("`secret_value` is missing".to_owned()),
        (ValuePolicy::Provided, Some(value)) => {
            let bytes = value.reveal().len();
            if bytes == 0 || bytes > schema::VALUE_BYTES_MAX {
                let most = schema::VALUE_BYTES_MAX;
                arguments.problem(format!("`secret_value` must have 1 to {most} bytes"));
            }
        }
        (ValuePolicy::Deterministic | ValuePolicy::Random, Some(_)) => {
            arguments.problem("`secret_value` is taken with `policy: provided` only".to_owned());
        }
        (ValuePolicy::Deterministic | ValuePolicy::Random, None) => {}
    }
    if let Some(key) = &idempotency_key
        && !is_key(key)
    {
        let most = schema::KEY_CHARS_MAX;
        arguments.problem(format!(
            "`idempotency_key` must be 1 to {most} letters, digits and `. _ - : /`"
        ));
    }
    arguments.finish()?;
    if context.project.is_some() && project != own {
        let message = format!("this run is of the project `{own}` and does not act for others");
        return Err(Refusal::new(ErrorCode::PolicyDenied, message));
    }
    let digest = chain::digest(&json!({
        "project": project, "repository": target.repository, "environment": target.environment,
        "scope": target.scope.as_str(), "github_secret": target.github_secret, "kubernetes": target.kubernetes_ref(),
        "policy": policy.as_str(), "value": value.as_ref().map(|value| vault.digest(value)),
    }));
    Ok(Wanted {
        project,
        target,
        policy,
        value,
        idempotency_key,
        dry_run,
        digest,
    })
}

fn check_places(target: &SyncTarget, arguments: &mut Arguments<'_>) {
    if !is_repository(&target.repository) {
        arguments.problem("`repository` must be `owner/name`".to_owned());
    }
    let name = &target.github_secret;
    if !name.is_empty() && !is_github_secret(name) {
        let rule = "letters, digits and underscores, begin with no digit and not with `GITHUB_`";
        arguments.problem(format!("`github_secret_name` must be {rule}"));
    }
    if target.environment.chars().count() > 255 || target.environment.chars().any(char::is_control) {
        arguments.problem("`environment` must be at most 255 characters of text".to_owned());
    }
    if !is_dns(&target.namespace, 63) || target.namespace.contains('.') {
        arguments.problem("`kubernetes_namespace` must be the name of a namespace".to_owned());
    }
    if !target.kubernetes_secret.is_empty() && !is_dns(&target.kubernetes_secret, 253) {
        arguments.problem(
            "`kubernetes_secret_name` must be lower-case letters, digits, `-` and `.`, 253 at most".to_owned(),
        );
    }
    let key = &target.kubernetes_key;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if key.is_empty() || key.len() > 253 || key == "." || key == ".." || !key.chars().all(fits) {
        arguments.problem("`kubernetes_secret_key` must be letters, digits and `- _ .`, 253 at most".to_owned());
    }
}

fn is_key(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/');
    (1..=schema::KEY_CHARS_MAX).contains(&text.len()) && text.chars().all(fits)
}

fn is_repository(text: &str) -> bool {
    let fits = |part: &str| {
        let taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && part.len() <= 100 && part != "." && part != ".." && part.chars().all(taken)
    };
    matches!(text.split_once('/'), Some((owner, name)) if fits(owner) && fits(name))
}

fn is_github_secret(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_theirs = text.to_ascii_uppercase().starts_with("GITHUB_");
    text.len() <= 255 && text.starts_with(begins) && text.chars().all(goes_on) && !is_theirs
}

/// Kubernetes' names: labels of letters, digits and dashes, between dots.
fn is_dns(text: &str, most: usize) -> bool {
    let label = |label: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    !text.is_empty() && text.len() <= most && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_systems_take() {
        for good in ["acme/shop", "a/b.c-d_e"] {
            assert!(is_repository(good), "{good}");
        }
        for bad in ["acme", "acme/", "/x", "a/b/c", "a/..", "a b/c", "a/b?c", "a/b#c"] {
            assert!(!is_repository(bad), "{bad}");
        }
        assert!(is_github_secret("DB_PASSWORD") && is_github_secret("_x1"));
        for bad in ["1X", "A-B", "GITHUB_X", "github_x", "A/B", ""] {
            assert!(!is_github_secret(bad), "{bad}");
        }
        assert!(is_dns("shop-dev", 63) && is_dns("a.b", 253));
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", "a/b"] {
            assert!(!is_dns(bad, 253), "{bad}");
        }
        assert!(is_key("run:1/a.b_c-d") && !is_key("a b") && !is_key(&"k".repeat(129)));
    }
}
