//! Tools that are no commands: how they are offered, read, cleared and performed.
//!
//! A [`Toolbox`] brings definitions and reads a call into an [`Act`]. The spine takes it from there: policy
//! decides, a person is asked where it says so, the record opens, and only then is the act handed its
//! [`ClearedAct`], without which it cannot be performed.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::approval::ClearedAct;
use crate::approval::request::ApprovalType;
use crate::audit::Pending;
use crate::catalog::definition::ToolDefinition;
use crate::delegation::Delegation;
use crate::error::{Refusal, Status};
use crate::policy::actor::Target;
use crate::policy::agents::Judgement;
use crate::policy::decide::Surroundings;
use crate::policy::effective::EffectivePolicy;
use crate::service::ToolCall;
use crate::session::Caller;

/// Port: a family of tools.
pub trait Toolbox: Send + Sync + 'static {
    /// The tools that can work here now, in the order clients list them.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Whether one of them has this name.
    fn offers(&self, name: &str) -> bool {
        self.definitions().iter().any(|tool| tool.name == name)
    }

    /// Reads a call to one of them. Nothing is done yet.
    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal>;

    /// How their results are written as text.
    fn form(&self) -> Form {
        Form::Yaml
    }

    /// What a refusal is in the words of these tools, where their callers understand no other result.
    fn refusal(&self, _refusal: &Refusal) -> Option<Map<String, Value>> {
        None
    }

    /// What `status` says of an act that was let go and went wrong.
    fn failed(&self) -> &'static str {
        Status::Failed.as_str()
    }

    /// Puts right what acts left half done when their process died. Called when a process begins to serve;
    /// whoever has nothing to put right reaches for nothing.
    fn repair(&self) -> Pending<()> {
        Box::pin(async {})
    }
}

/// How the text of a result repeats its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// For models, which read it.
    Yaml,
    /// For programs, which parse it. It stands alone: Claude Code, for one, takes structured content for the
    /// whole result where there is some, and then misses the text that it expects.
    Json,
}

/// A call, and what it is read by.
pub struct Asked<'a> {
    pub caller: &'a Caller,
    pub call: &'a ToolCall,
    pub policy: &'a EffectivePolicy,
    pub around: &'a Surroundings<'a>,
}

/// What a call wants done.
pub trait Act: Send + Sync + 'static {
    /// The value of the argument `action`, where the tool has one.
    fn action(&self) -> Option<&str> {
        None
    }

    /// What it is aimed at, where its arguments say so.
    fn target(&self) -> Target<'_> {
        Target::default()
    }

    /// What it asks for beyond what policy gives, in words.
    fn wants_more(&self) -> Option<String> {
        None
    }

    /// What policy says of the deed itself, where the tool answers for what others want to do.
    fn judgement(&self) -> Option<&Judgement> {
        None
    }

    /// As what a person is asked.
    fn kind(&self) -> ApprovalType {
        ApprovalType::ToolCall
    }

    /// How long the caller waits for a person, where it says so itself.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Looking changes nothing, so its record is written when it is answered.
    fn only_looks(&self) -> bool {
        false
    }

    /// Counts it against the limits of its tool, once it may be done.
    fn begins(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// What is written with its opening, where a service outside performs it.
    fn delegation(&self, _cleared: &ClearedAct) -> Option<Delegation> {
        None
    }

    /// The systems it acts upon, where these are several: each leaves its own end in the record.
    fn systems(&self) -> &'static [&'static str] {
        &[]
    }

    /// What a person must see to decide; redacted by whoever shows it.
    fn details(&self) -> Map<String, Value>;

    /// The arguments that an approval is bound to. Digests of them are shown: a short secret among them is
    /// told by a keyed digest, or it could be guessed.
    fn bound_arguments(&self, given: &Map<String, Value>) -> Value {
        Value::Object(given.clone())
    }

    /// Looks, before anybody is asked, whether there is anything to do at all. An answer is given as it is and
    /// nothing is done; a refusal spares a person a question.
    fn foresee(&self) -> Pending<Result<Option<Map<String, Value>>, Refusal>> {
        Box::pin(async { Ok(None) })
    }

    /// Goes on with what the same request came to before, where that was not its end. Nothing is done again.
    fn resume(&self, came_to: Result<Map<String, Value>, Refusal>) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async { came_to })
    }

    /// Does it. The fields of the tool's result.
    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>>;
}
