//! Which client a question came from: what the record says of its call, and of that call's session.

use std::collections::HashMap;

use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::session::lifetime::Session;

use super::Console;

/// Questions whose origin is looked up for one page, and sessions that are known by name.
const LOOKED_UP_MAX: usize = 50;
const SESSIONS_MAX: usize = 500;

/// Origins by correlation.
#[derive(Default)]
pub(super) struct Origins(HashMap<String, String>);

impl Origins {
    pub(super) async fn of(console: &Console, questions: &[ApprovalRequest]) -> Result<Self, RecordError> {
        if questions.is_empty() {
            return Ok(Self::default());
        }
        let records = &console.office.records;
        let sessions = records.known_sessions(None, SESSIONS_MAX).await?;
        let clients: HashMap<String, String> = sessions
            .iter()
            .filter_map(|session| Some((session.id.mark(), client(session)?)))
            .collect();
        let mut origins = HashMap::new();
        for question in questions.iter().take(LOOKED_UP_MAX) {
            let filter = Filter {
                correlation_id: Some(question.correlation_id.to_string()),
                limit: 1,
                ..Filter::everything()
            };
            let Some(row) = records.events(filter).await?.pop() else {
                continue;
            };
            let payload = row.payload().unwrap_or_default();
            let of = |name: &str| payload[name].as_str();
            let client = of("session_id").and_then(|mark| clients.get(mark)).cloned();
            let said: Vec<String> = client
                .into_iter()
                .chain(of("transport").map(|transport| format!("over {transport}")))
                .collect();
            origins.insert(question.correlation_id.to_string(), said.join(" "));
        }
        Ok(Self(origins))
    }

    pub(super) fn get(&self, question: &ApprovalRequest) -> Option<&str> {
        let found = self.0.get(question.correlation_id.as_str())?;
        Some(found.as_str()).filter(|said| !said.is_empty())
    }
}

fn client(session: &Session) -> Option<String> {
    let name = session.client.name.as_deref()?;
    let version = session.client.version.as_deref().unwrap_or_default();
    Some(format!("{name} {version}").trim().to_owned())
}
