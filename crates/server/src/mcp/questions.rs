//! Questions one connection has put to its client and that wait for an answer.
//!
//! Only an id that was asked here, and not answered yet, finds anybody: an answer made up, given twice
//! or sent on another connection is nobody's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::error::{ErrorCode, Refusal};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::limits::QUESTIONS_OPEN_MAX;

/// What a client said to a question.
pub(crate) type Told = Result<Value, ClientError>;

/// A client's refusal to answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientError {
    pub(crate) code: i64,
    pub(crate) message: String,
}

/// Names a call's conversation among those of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConversationKey(u64);

#[derive(Default)]
pub(crate) struct Questions(Mutex<Table>);

#[derive(Default)]
struct Table {
    open: HashMap<String, Entry>,
    last_key: u64,
    /// The client is gone; nobody will answer any more.
    hung_up: bool,
}

struct Entry {
    of: ConversationKey,
    teller: oneshot::Sender<Told>,
}

/// A question that is open for as long as this lives.
pub(crate) struct OpenQuestion {
    pub(crate) id: String,
    pub(crate) told: oneshot::Receiver<Told>,
    questions: Arc<Questions>,
}

impl Questions {
    pub(crate) fn conversation(&self) -> ConversationKey {
        let mut table = self.table();
        table.last_key += 1;
        ConversationKey(table.last_key)
    }

    /// Enters a question under an id that nobody else uses.
    pub(crate) fn open(self: &Arc<Self>, of: ConversationKey, id: String) -> Result<OpenQuestion, Refusal> {
        let (teller, told) = oneshot::channel();
        let mut table = self.table();
        if table.hung_up {
            return Err(Refusal::new(
                ErrorCode::Cancelled,
                "the client is gone and cannot be asked",
            ));
        }
        if table.open.len() >= QUESTIONS_OPEN_MAX {
            let message = format!("{QUESTIONS_OPEN_MAX} questions to this client are open; let it answer some first");
            return Err(Refusal::new(ErrorCode::RateLimited, message));
        }
        table.open.insert(id.clone(), Entry { of, teller });
        drop(table);
        Ok(OpenQuestion {
            id,
            told,
            questions: Arc::clone(self),
        })
    }

    /// Hands an answer to whoever asked. False when nobody did.
    pub(crate) fn answer(&self, id: &str, told: Told) -> bool {
        let entry = self.table().open.remove(id);
        entry.is_some_and(|entry| entry.teller.send(told).is_ok())
    }

    /// Nobody waits for the questions of this conversation any more.
    pub(crate) fn withdraw(&self, of: ConversationKey) {
        self.table().open.retain(|_, entry| entry.of != of);
    }

    /// The client is gone: all questions are withdrawn and no more are taken.
    pub(crate) fn hang_up(&self) {
        let mut table = self.table();
        table.hung_up = true;
        table.open.clear();
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table().open.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenQuestion {
    /// Takes the question back. True if the client could still have answered it.
    pub(crate) fn withdraw(&self) -> bool {
        self.questions.table().open.remove(&self.id).is_some()
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_finds_only_the_question_it_was_asked() {
        let (here, there) = (Arc::new(Questions::default()), Arc::new(Questions::default()));
        let mut asked = here.open(here.conversation(), "q1".to_owned()).unwrap();
        assert!(!here.answer("q2", Ok(json!(1))), "never asked");
        assert!(!there.answer("q1", Ok(json!(2))), "asked on another connection");
        assert!(here.answer("q1", Ok(json!(3))));
        assert!(!here.answer("q1", Ok(json!(4))), "answered already");
        assert_eq!(asked.told.try_recv().unwrap(), Ok(json!(3)));
    }

    #[test]
    fn a_question_is_open_no_longer_than_someone_waits() {
        let questions = Arc::new(Questions::default());
        let key = questions.conversation();
        let other = questions.open(questions.conversation(), "other".to_owned()).unwrap();
        let mut asked = questions.open(key, "q".to_owned()).unwrap();
        questions.withdraw(key);
        assert!(asked.told.try_recv().is_err());
        assert!(!questions.answer("q", Ok(json!(1))));
        assert_eq!(questions.count(), 1);
        drop(other);
        assert_eq!(questions.count(), 0);
    }

    #[test]
    fn the_number_of_open_questions_is_bounded() {
        let questions = Arc::new(Questions::default());
        let key = questions.conversation();
        let ask = |number: usize| questions.open(key, number.to_string());
        let open: Vec<_> = (0..QUESTIONS_OPEN_MAX).map(|number| ask(number).unwrap()).collect();
        assert!(ask(QUESTIONS_OPEN_MAX).is_err());
        drop(open);
        assert!(ask(0).is_ok());
    }

    #[test]
    fn nobody_is_asked_after_the_client_has_gone() {
        let questions = Arc::new(Questions::default());
        let key = questions.conversation();
        let mut asked = questions.open(key, "q".to_owned()).unwrap();
        questions.hang_up();
        assert!(asked.told.try_recv().is_err());
        assert!(questions.open(key, "r".to_owned()).is_err());
        assert_eq!(questions.count(), 0);
    }
}
