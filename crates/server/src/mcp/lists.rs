//! Lists of tools as they were written before. Clients ask for them again and again, and they change with
//! the policy only: the same list from the gateway is the same bytes.

use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::catalog::definition::ToolDefinition;

use super::revision::Era;
use crate::limits::LISTS_WRITTEN_MAX;

#[derive(Default)]
pub(crate) struct Lists(Mutex<Vec<Written>>);

struct Written {
    /// Held, so that no other list can come to lie in its place.
    tools: Arc<[ToolDefinition]>,
    era: Era,
    bytes: Arc<[u8]>,
}

impl Lists {
    /// The list in the words of a revision, written now if it was not before.
    pub(crate) fn of(&self, tools: &Arc<[ToolDefinition]>, era: Era, write: impl FnOnce() -> Vec<u8>) -> Arc<[u8]> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lists
            .iter()
            .find(|list| list.era == era && Arc::ptr_eq(&list.tools, tools));
        if let Some(list) = known {
            return Arc::clone(&list.bytes);
        }
        let bytes: Arc<[u8]> = write().into();
        if lists.len() >= LISTS_WRITTEN_MAX {
            lists.remove(0);
        }
        lists.push(Written {
            tools: Arc::clone(tools),
            era,
            bytes: Arc::clone(&bytes),
        });
        bytes
    }
}
