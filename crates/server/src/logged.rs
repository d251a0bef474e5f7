//! What others said, as it may stand in the log: anybody who looks after the server reads that.

use std::sync::LazyLock;

use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::limits::REFUSED_TEXT_CHARS_MAX;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new(Config::default()));

/// Its beginning, without secrets.
pub(crate) fn logged(text: &str) -> String {
    // Cut before it is searched, but not so short that a secret's name is lost.
    let head: String = text.chars().take(4 * REFUSED_TEXT_CHARS_MAX).collect();
    let clean = REDACTOR.redact_text(&head);
    clean.chars().take(REFUSED_TEXT_CHARS_MAX).collect()
}
