//! What the tool says where there is nothing to allow.

use super::*;
use crate::audit::redact::Config;
use crate::policy::matrix;

fn tools() -> Arc<PromptTools> {
    PromptTools::new(Redactor::new(Config::default()), |_| false)
}

#[test]
fn policy_knows_the_tool() {
    assert!(matrix::tools().iter().any(|known| known.name == NAME));
}

#[test]
fn whatever_is_no_yes_is_a_no_with_words_for_the_agent() {
    let denied = |refusal: &Refusal| Value::Object(tools().refusal(refusal).unwrap());
    assert_eq!(
        denied(&Refusal::new(ErrorCode::PolicyDenied, "not here")),
        json!({"behavior": "deny", "message": "not here"})
    );
    let pending = Refusal::new(ErrorCode::ApprovalPending, "waits").with("approval_id", "ap1");
    let said = denied(&pending);
    assert_eq!(said["behavior"], "deny");
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("countersign approve ap1") && message.contains("same again"),
        "{message}"
    );
}
