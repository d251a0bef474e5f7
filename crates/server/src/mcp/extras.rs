//! Features beyond the product's own. The dispatcher asks them first and knows nothing else about them;
//! a server without them behaves as if they did not exist.

use countersign_gateway::error::Refusal;
use serde_json::{Map, Value};

use super::client::Client;
use super::job::Job;
use super::jsonrpc::Request;
use super::revision::Era;

pub(crate) trait Extras: Send + Sync + 'static {
    /// What they add to the list that a method answers with.
    fn listed(&self, method: &str, era: Era) -> Vec<Value>;

    /// Adds to what the server says it can do.
    fn declare(&self, era: Era, capabilities: &mut Map<String, Value>);

    /// Takes a request that is meant for them.
    fn job(&self, client: &Client, request: &Request) -> Result<Option<Job>, Refusal>;
}
