//! Asking a modern client: an answer that says `input_required`, and the same request again with what
//! was asked for.
//!
//! What the server must remember between the rounds travels through the client, under a [`super::seal`].

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::question::Question;
use crate::limits::INPUT_REQUESTS_MAX;

/// What a client sent with a later round.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Inputs {
    /// Answers by the key of their question. Nobody has looked at them yet.
    answers: Map<String, Value>,
    state: Option<String>,
}

impl Inputs {
    pub(crate) fn read(params: &Map<String, Value>) -> Result<Self, Refusal> {
        let invalid = |message| Refusal::new(ErrorCode::InvalidParams, message);
        let answers = match params.get("inputResponses") {
            None => Map::new(),
            Some(Value::Object(answers)) => answers.clone(),
            Some(_) => return Err(invalid("`params.inputResponses` must be an object")),
        };
        let state = match params.get("requestState") {
            None => None,
            Some(Value::String(state)) => Some(state.clone()),
            Some(_) => return Err(invalid("`params.requestState` must be text")),
        };
        Ok(Self { answers, state })
    }

    /// The answer to a question, if the client gave one that fits. Others are as good as none: the
    /// question is asked again.
    pub(crate) fn answer(&self, key: &str, question: &Question) -> Option<&Value> {
        self.answers.get(key).filter(|answer| question.check(answer).is_ok())
    }

    /// The answers to all questions; none when one of them is missing.
    pub(crate) fn answers(&self, questions: &[(String, Question)]) -> Option<Map<String, Value>> {
        let answer = |(key, question): &(String, Question)| {
            self.answer(key, question).map(|answer| (key.clone(), answer.clone()))
        };
        questions.iter().map(answer).collect()
    }

    pub(crate) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// The result that asks for more.
pub(crate) fn input_required(
    client: &Client,
    questions: &[(String, Question)],
    state: Option<String>,
) -> Result<Value, Refusal> {
    debug_assert!(questions.len() <= INPUT_REQUESTS_MAX);
    let mut requests = Map::new();
    for (key, question) in questions {
        question.fits(client.era, client.capabilities)?;
        let request = json!({"method": question.method(), "params": question.params()});
        requests.insert(key.clone(), request);
    }
    let mut result = json!({"resultType": "input_required"});
    // An answer has at least one of the two.
    if !requests.is_empty() || state.is_none() {
        result["inputRequests"] = requests.into();
    }
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_do_not_fit_are_as_good_as_none() {
        let question = Question::new("roots/list", json!({})).unwrap();
        let questions = [("a".to_owned(), question.clone()), ("b".to_owned(), question)];
        let read = |params: Value| Inputs::read(params.as_object().unwrap());
        let roots = json!({"roots": []});
        for (answers, complete) in [
            (json!({"a": roots, "b": roots, "unheard": 1}), true),
            (json!({"a": roots}), false),
            (json!({"a": roots, "b": 12345}), false),
        ] {
            let inputs = read(json!({"inputResponses": answers})).unwrap();
            assert_eq!(inputs.answers(&questions).is_some(), complete, "{answers}");
        }
        assert!(read(json!({"inputResponses": null})).is_err());
        assert!(read(json!({"requestState": 5})).is_err());
    }
}
