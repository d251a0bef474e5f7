//! What is kept of an act for the request that it came in: the request sent again is answered with it, and
//! nothing is done a second time.

use serde_json::{Map, Value, json};

use super::Asked;
use super::redact::Redactor;
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CredentialId, RequestId};

/// The request of a lasting session that an act came in. Of several processes that get it, one does it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedAct {
    pub owner: CredentialId,
    /// Made of the session, the client's id and the content, so that it is the same wherever the request comes to.
    pub request_id: RequestId,
    /// What the session knows it again by; none where the client's id is too long to be remembered.
    pub asked: Option<Asked>,
}

/// What the store knows of such an act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredAct {
    /// Somebody is at it.
    Open,
    Ended(KeptOutcome),
}

/// How an act went, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptOutcome(String);

type Fields = Map<String, Value>;

impl KeptOutcome {
    pub fn of(outcome: &Result<Fields, Refusal>, redactor: &Redactor) -> Self {
        let kept = match outcome {
            Ok(fields) => json!({"result": redactor.redact_json(&Value::Object(fields.clone()))}),
            Err(refusal) => {
                let details = redactor.redact_json(&Value::Object(refusal.details.clone()));
                let message = redactor.redact_text(&refusal.message);
                json!({"error": {"code": refusal.code.name(), "message": message, "details": details}})
            }
        };
        Self(kept.to_string())
    }

    /// Of an act that ended in no other way than this.
    pub fn failed(code: ErrorCode, reason: &str) -> Self {
        Self(json!({"error": {"code": code.name(), "message": reason, "details": {}}}).to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As the store has it.
    pub fn trusted(text: String) -> Self {
        Self(text)
    }

    /// What the request is answered with. A text that says nothing is an error and no reason to do it again.
    pub fn read(&self) -> Result<Fields, Refusal> {
        let mut kept: Value = serde_json::from_str(&self.0).unwrap_or_default();
        if let Some(Value::Object(fields)) = kept.get_mut("result").map(Value::take) {
            return Ok(fields);
        }
        let error = &kept["error"];
        let code = error["code"].as_str().and_then(ErrorCode::parse);
        let message = error["message"]
            .as_str()
            .unwrap_or("how this went can no longer be read");
        Err(Refusal {
            details: error["details"].as_object().cloned().unwrap_or_default(),
            ..Refusal::new(code.unwrap_or(ErrorCode::InternalError), message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    fn kept(outcome: &Result<Fields, Refusal>) -> Result<Fields, Refusal> {
        let redactor = Redactor::new(Config {
            patterns: Vec::new(),
            secret_values: vec!["hunter2hunter2".to_owned()],
        });
        KeptOutcome::trusted(KeptOutcome::of(outcome, &redactor).as_str().to_owned()).read()
    }

    #[test]
    fn what_is_kept_answers_as_the_act_did_but_for_secrets() {
        let fields = |word: &str| Map::from_iter([("jobId".to_owned(), json!(word))]);
        assert_eq!(kept(&Ok(fields("j1"))).unwrap(), fields("j1"));
        let refusal = Refusal::new(ErrorCode::UpstreamError, "nobody is there").with("jobId", "j1");
        assert_eq!(kept(&Err(refusal.clone())).unwrap_err(), refusal);
        let said = kept(&Ok(fields("hunter2hunter2"))).unwrap();
        assert!(!said["jobId"].to_string().contains("hunter2"), "{said:?}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for text in ["", "{}", r#"{"result": 1}"#, r#"{"error": {"code": "WHAT"}}"#] {
            let code = KeptOutcome::trusted(text.to_owned()).read().unwrap_err().code;
            assert_eq!(code, ErrorCode::InternalError, "{text}");
        }
        let abandoned = KeptOutcome::failed(ErrorCode::Abandoned, "gone").read();
        assert_eq!(abandoned.unwrap_err(), Refusal::new(ErrorCode::Abandoned, "gone"));
    }
}
