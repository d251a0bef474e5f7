//! Which tools exist, who sees them, and how their arguments are read.
//!
//! [`resolve`] makes [`Resolved`], the second link of the proof chain: a caller, a tool it may call,
//! and the call.

pub mod arguments;
pub mod definition;

use std::sync::Arc;

use crate::error::{ErrorCode, Refusal, brief};
use crate::policy::decide::Rule;
use crate::policy::effective::EffectivePolicy;
use crate::service::ToolCall;
use crate::session::{Admitted, Caller};
use crate::tools::acts::Toolbox;
use crate::tools::declared::DeclaredTool;
use crate::tools::exec::request::CommandTool;
use crate::tools::exec::schema;
use definition::ToolDefinition;

/// The tools by kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tool {
    Command(CommandTool),
    Status,
    Cancel,
    /// A tool of a toolbox, by its place.
    Act(usize),
    /// A tool of a file that a service outside performs.
    Delegated(Arc<DeclaredTool>),
}

impl Tool {
    fn by_name(policy: &EffectivePolicy, name: &str, boxes: &[Arc<dyn Toolbox>]) -> Option<Self> {
        let holds = |toolbox: &Arc<dyn Toolbox>| toolbox.offers(name);
        match name {
            "command_status" => Some(Self::Status),
            "command_cancel" => Some(Self::Cancel),
            _ => {
                let declared = || policy.tools.declared().find(name).cloned().map(Self::Delegated);
                let command = policy.tools.command_tool(name).map(Self::Command);
                command
                    .or_else(|| boxes.iter().position(holds).map(Self::Act))
                    .or_else(declared)
            }
        }
    }
}

/// A call to a tool that is there for its caller.
pub struct Resolved {
    pub(crate) admitted: Admitted,
    pub(crate) tool: Tool,
    pub(crate) call: ToolCall,
}

/// A call to a tool that is not there, given back for the record.
pub struct NotThere {
    pub(crate) call: ToolCall,
    pub(crate) refusal: Refusal,
    /// Which rule hides it, where there is such a tool: for the record alone.
    pub(crate) hidden_by: Option<Rule>,
}

/// Finds the tool. One that is disabled, or not for this caller, is answered exactly like one that
/// does not exist.
pub fn resolve(
    policy: &EffectivePolicy,
    boxes: &[Arc<dyn Toolbox>],
    admitted: Admitted,
    call: ToolCall,
) -> Result<Resolved, Box<NotThere>> {
    let context = policy.context(admitted.caller());
    let found = Tool::by_name(policy, &call.tool, boxes);
    let hidden_by = match (found, policy.tools.sees(&context, &call.tool)) {
        (Some(tool), Ok(())) => return Ok(Resolved { admitted, tool, call }),
        (Some(_), Err(rule)) => Some(rule),
        (None, _) => None,
    };
    let name = brief(&call.tool);
    let message = format!("tool `{name}` is not in this catalog; tools/list shows what is");
    let refusal = Refusal::new(ErrorCode::UnknownTool, message);
    Err(Box::new(NotThere {
        call,
        refusal,
        hidden_by,
    }))
}

/// The tools a caller may call. What policy denies is left out, though a call to it would be told why.
pub fn listed(policy: &EffectivePolicy, boxes: &[Arc<dyn Toolbox>], caller: &Caller) -> Vec<ToolDefinition> {
    let context = policy.context(caller);
    schema::definitions()
        .into_iter()
        .chain(boxes.iter().flat_map(|toolbox| toolbox.definitions()))
        .chain(policy.tools.declared().iter().map(|tool| tool.definition.clone()))
        .filter(|tool| policy.tools.lists(&context, &tool.name))
        .collect()
}
