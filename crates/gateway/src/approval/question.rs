//! A question that is about no act: a person chooses one of a few options, or says it in words of their
//! own where that is allowed.
//!
//! What is offered stands in the details of an [`ApprovalRequest`] of type `question`; an answer that was
//! not offered is refused before it is counted.

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::ballot::Choice;
use super::request::{ApprovalRequest, ApprovalType};
use crate::limits::{ANSWER_CHARS_MAX, QUESTION_CHARS_MAX};

/// How many options a question has.
pub const OPTIONS: std::ops::RangeInclusive<usize> = 2..=5;

/// What is asked, and what may be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    // INVARIANT: between two and five, none empty, no two alike.
    question: String,
    options: Vec<String>,
    allow_custom: bool,
}

/// What somebody answers, before it is held against the offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given {
    Option(String),
    Custom(String),
}

/// An answer that was offered, or that is somebody's own where that is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answered {
    /// With its place among the options, the first being 0.
    Option {
        index: usize,
        text: String,
    },
    Custom(String),
}

/// A question that cannot be asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OfferError {
    #[error("a question has between 1 and {QUESTION_CHARS_MAX} characters")]
    Question,
    #[error("a question has {} to {} options, not {given}", OPTIONS.start(), OPTIONS.end())]
    Count { given: usize },
    #[error("an option has between 1 and {ANSWER_CHARS_MAX} characters")]
    Option,
    #[error("the option `{0}` is there twice")]
    Twice(String),
}

/// An answer that does not fit what was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AnswerError {
    #[error("this is a question: answer it with one of its options, {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("`{given}` was not offered; choose one of {}", .offered.join(", "))]
    NotOffered { given: String, offered: Vec<String> },
    #[error("this question takes no answer but its options, {}", .0.join(", "))]
    NoCustom(Vec<String>),
    #[error("an answer in words of your own has between 1 and {ANSWER_CHARS_MAX} characters")]
    Length,
    #[error("this is no question with options; approve or deny it")]
    NoQuestion,
    #[error("who denies a question chooses none of its answers")]
    Denied,
}

impl Offer {
    pub fn new(question: &str, options: &[String], allow_custom: bool) -> Result<Self, OfferError> {
        if !fits(question, QUESTION_CHARS_MAX) {
            return Err(OfferError::Question);
        }
        if !OPTIONS.contains(&options.len()) {
            return Err(OfferError::Count { given: options.len() });
        }
        for (index, option) in options.iter().enumerate() {
            if !fits(option, ANSWER_CHARS_MAX) {
                return Err(OfferError::Option);
            }
            if options[..index].iter().any(|other| other.trim() == option.trim()) {
                return Err(OfferError::Twice(option.clone()));
            }
        }
        Ok(Self {
            question: question.to_owned(),
            options: options.to_vec(),
            allow_custom,
        })
    }

    /// What a question on the board offers; none for one that is about an act.
    pub fn of(approval: &ApprovalRequest) -> Option<Self> {
        if approval.kind != ApprovalType::Question {
            return None;
        }
        let details = &approval.details;
        let options = details.get("options").and_then(Value::as_array);
        let options = options.into_iter().flatten().filter_map(Value::as_str);
        Some(Self {
            question: text(details, "question"),
            options: options.map(str::to_owned).collect(),
            allow_custom: details.get("allow_custom") == Some(&Value::Bool(true)),
        })
    }

    pub fn details(&self) -> Map<String, Value> {
        Map::from_iter([
            ("question".to_owned(), json!(self.question)),
            ("options".to_owned(), json!(self.options)),
            ("allow_custom".to_owned(), json!(self.allow_custom)),
        ])
    }

    pub fn question(&self) -> &str {
        &self.question
    }

    pub fn options(&self) -> &[String] {
        &self.options
    }

    pub fn allows_custom(&self) -> bool {
        self.allow_custom
    }

    fn take(&self, given: &Given) -> Result<Answered, AnswerError> {
        match given {
            Given::Option(text) => {
                let index = self.options.iter().position(|option| option == text);
                let index = index.ok_or_else(|| AnswerError::NotOffered {
                    given: crate::error::brief(text).into_owned(),
                    offered: self.options.clone(),
                })?;
                let text = text.clone();
                Ok(Answered::Option { index, text })
            }
            Given::Custom(_) if !self.allow_custom => Err(AnswerError::NoCustom(self.options.clone())),
            Given::Custom(text) if !fits(text, ANSWER_CHARS_MAX) => Err(AnswerError::Length),
            Given::Custom(text) => Ok(Answered::Custom(text.clone())),
        }
    }
}

/// Holds what was given against what was asked. An act is approved or denied; a question is answered, or
/// denied without an answer.
pub fn check(
    approval: &ApprovalRequest,
    choice: Choice,
    given: Option<&Given>,
) -> Result<Option<Answered>, AnswerError> {
    match (Offer::of(approval), choice, given) {
        (None, _, None) | (Some(_), Choice::Deny, None) => Ok(None),
        (None, _, Some(_)) => Err(AnswerError::NoQuestion),
        (Some(_), Choice::Deny, Some(_)) => Err(AnswerError::Denied),
        (Some(offer), Choice::Allow, None) => Err(AnswerError::Missing(offer.options)),
        (Some(offer), Choice::Allow, Some(given)) => offer.take(given).map(Some),
    }
}

impl Answered {
    /// S4's fields; what was not chosen is null.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Option { index, text } => json!({"selected_option": text, "selected_index": index, "custom": null}),
            Self::Custom(text) => json!({"selected_option": null, "selected_index": null, "custom": text}),
        }
    }

    pub(super) fn from_json(kept: &Value) -> Option<Self> {
        let index = kept["selected_index"].as_u64();
        match (kept["selected_option"].as_str(), index, kept["custom"].as_str()) {
            (Some(text), Some(index), None) => Some(Self::Option {
                index: usize::try_from(index).ok()?,
                text: text.to_owned(),
            }),
            (None, None, Some(custom)) => Some(Self::Custom(custom.to_owned())),
            _ => None,
        }
    }
}

fn fits(text: &str, chars_max: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= chars_max
}

fn text(details: &Map<String, Value>, name: &str) -> String {
    details.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::sample;
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn asked(allow_custom: bool) -> ApprovalRequest {
        let offer = Offer::new("Which branch?", &words(&["main", "next"]), allow_custom).unwrap();
        let mut approval = sample(1);
        approval.kind = ApprovalType::Question;
        approval.details = offer.details();
        assert_eq!(Offer::of(&approval), Some(offer));
        approval
    }

    #[test]
    fn a_question_has_two_to_five_different_options() {
        let offer = |options: &[&str]| Offer::new("Which?", &words(options), false).map(drop);
        assert_eq!(offer(&["a"]), Err(OfferError::Count { given: 1 }));
        assert_eq!(offer(&["a", "b"]), Ok(()));
        assert_eq!(offer(&["a", "b", "c", "d", "e"]), Ok(()));
        assert_eq!(
            offer(&["a", "b", "c", "d", "e", "f"]),
            Err(OfferError::Count { given: 6 })
        );
        assert_eq!(offer(&["a", "b", "a "]), Err(OfferError::Twice("a ".to_owned())));
        assert_eq!(offer(&["a", " "]), Err(OfferError::Option));
        let long = "x".repeat(ANSWER_CHARS_MAX + 1);
        assert_eq!(offer(&["a", &long]), Err(OfferError::Option));
        assert_eq!(offer(&["a", &long[1..]]), Ok(()));
        assert_eq!(Offer::new(" ", &words(&["a", "b"]), false), Err(OfferError::Question));
    }

    #[test]
    fn only_what_was_offered_is_an_answer() {
        let option = |text: &str| Given::Option(text.to_owned());
        let custom = |text: &str| Given::Custom(text.to_owned());
        let take = |allow_custom, given: Given| check(&asked(allow_custom), Choice::Allow, Some(&given));
        let next = Answered::Option {
            index: 1,
            text: "next".to_owned(),
        };
        assert_eq!(take(false, option("next")), Ok(Some(next)));
        assert!(matches!(
            take(true, option("other")),
            Err(AnswerError::NotOffered { .. })
        ));
        assert!(matches!(
            take(true, option("Next")),
            Err(AnswerError::NotOffered { .. })
        ));
        assert!(matches!(take(false, custom("mine")), Err(AnswerError::NoCustom(_))));
        assert_eq!(
            take(true, custom("mine")),
            Ok(Some(Answered::Custom("mine".to_owned())))
        );
        assert_eq!(take(true, custom("  ")), Err(AnswerError::Length));
        assert_eq!(
            take(true, custom(&"x".repeat(ANSWER_CHARS_MAX + 1))),
            Err(AnswerError::Length)
        );
    }

    #[test]
    fn a_question_is_answered_or_denied_and_an_act_takes_no_answer() {
        let given = Given::Option("main".to_owned());
        let missing = check(&asked(false), Choice::Allow, None);
        assert!(matches!(missing, Err(AnswerError::Missing(_))), "{missing:?}");
        assert_eq!(check(&asked(false), Choice::Deny, None), Ok(None));
        assert_eq!(
            check(&asked(false), Choice::Deny, Some(&given)),
            Err(AnswerError::Denied)
        );
        assert_eq!(check(&sample(1), Choice::Allow, None), Ok(None));
        assert_eq!(
            check(&sample(1), Choice::Allow, Some(&given)),
            Err(AnswerError::NoQuestion)
        );
    }

    #[test]
    fn answers_read_back() {
        let option = Answered::Option {
            index: 0,
            text: "main".to_owned(),
        };
        for answer in [option, Answered::Custom("mine".to_owned())] {
            assert_eq!(Answered::from_json(&answer.to_json()), Some(answer));
        }
        assert_eq!(Answered::from_json(&json!({"selected_option": "a"})), None);
        assert_eq!(Answered::from_json(&Value::Null), None);
    }
}
