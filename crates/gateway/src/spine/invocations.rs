//! S2's McpToolInvocation, of calls that leave no command behind.
//!
//! A call that becomes a command is in the record by what the command leaves: no second row is written
//! for it. All other calls leave one event that says everything, committed before the answer leaves, and
//! a call that was answered while its command went on leaves one at that moment. What is shown of them
//! is put together in [`crate::audit::invocation`].

use serde_json::{Map, Value, json};

use super::Gateway;
use super::opening::unrecorded;
use crate::audit::event::{Draft, EventType};
use crate::audit::invocation::{presentable_arguments, presentable_id, refusal_error};
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::{REPLACEMENT, Redactor, named};
use crate::audit::{Change, RecordError};
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};
use crate::execution::live::Live;
use crate::ids::{CorrelationId, RequestId};
use crate::limits;
use crate::policy::decide::Rule;
use crate::service::{Answer, Origin, ToolCall};
use crate::session::{Caller, Transport};
use crate::tools::exec::result::CommandResult;

impl Gateway {
    /// Records a call that is refused before it is anybody's business. The refusal is answered either
    /// way: nothing was run.
    /// `hidden_by`: the rule that hides a tool which there is. The caller hears nothing of it.
    pub(super) async fn refuse_call(
        &self,
        caller: &Caller,
        call: &ToolCall,
        refusal: Refusal,
        hidden_by: Option<&Rule>,
    ) -> Refusal {
        let started = self.ports.clock.now();
        let correlation = caller.correlation(&self.ports.ids);
        let object = self.invocation(caller, call, started).text("status", "error");
        let own = self.redactor_of(call);
        let redactor = own.as_ref().unwrap_or(&self.ports.redactor);
        let error = error(refusal.code, &refusal.message, &refusal.details, &correlation, redactor);
        let hidden = hidden_by.map(|by| json!({"rule": by.name, "source": by.source, "reason": by.reason}));
        let object = match &hidden {
            Some(hidden) => object.part("hidden_by", &hidden.into()),
            None => object,
        };
        let payload = object.part("error", &error).finish();
        let recorded = match caller.transport {
            // A person at the terminal speaks no MCP.
            Transport::Terminal => Ok(()),
            Transport::Stdio | Transport::StreamableHttp | Transport::Sse | Transport::Rest | Transport::Console => {
                self.commit_event(caller, correlation.clone(), EventType::ToolCalled, payload)
                    .await
            }
        };
        if let Err(error) = recorded {
            tracing::warn!(%error, "a refused call could not be recorded");
        }
        refusal.recorded_as(correlation)
    }

    /// Records a call that started no command. Without its record it has no answer.
    pub(super) async fn called(&self, caller: &Caller, call: &ToolCall, started: Timestamp, answer: Answer) -> Answer {
        let outcome = Ok(answer);
        let correlation = caller.correlation(&self.ports.ids);
        let recorded = self.record_call(caller, call, started, &outcome, &correlation).await;
        match (recorded, outcome) {
            (Ok(()), Ok(answer)) => answer,
            (Err(error), _) => {
                let mut refusal = unrecorded(&error);
                refusal.message = format!("{error}; this call cannot be answered unrecorded, try again later");
                self.unanswered(&call.arguments, refusal)
            }
            (Ok(()), Err(refusal)) => self.unanswered(&call.arguments, refusal),
        }
    }

    /// Notes that a call was answered while its command goes on. What the command comes to is recorded
    /// when it ends, so failing here leaves a gap in nothing but the time of the answer.
    pub(super) async fn answered_early(&self, caller: &Caller, live: &Live, call: &ToolCall, answer: &Answer) {
        if caller.transport == Transport::Terminal {
            return;
        }
        let correlation = live.correlation_id.clone();
        let object = self
            .invocation(caller, call, live.started_at)
            .text("request_id", live.request_id.as_str());
        let payload = outcome(object, answer, &correlation, live.redactor(&self.ports.redactor)).finish();
        let written = self
            .commit_event(caller, correlation, EventType::ToolAnswered, payload)
            .await;
        if let Err(error) = written {
            tracing::warn!(%error, "an early answer could not be recorded");
        }
    }

    pub(super) async fn record_call(
        &self,
        caller: &Caller,
        call: &ToolCall,
        started: Timestamp,
        outcome: &Result<Answer, Refusal>,
        correlation: &CorrelationId,
    ) -> Result<(), RecordError> {
        // A person at the terminal speaks no MCP, and what they look at is nobody's invocation.
        if caller.transport == Transport::Terminal {
            return Ok(());
        }
        let object = self.invocation(caller, call, started);
        let own = self.redactor_of_act(call);
        let redactor = own.as_ref().unwrap_or(&self.ports.redactor);
        let object = match outcome {
            Ok(answer) => {
                let object = object.optional_text("request_id", answer.structured["request_id"].as_str());
                self::outcome(object, answer, correlation, redactor)
            }
            Err(refusal) => {
                let error = error(refusal.code, &refusal.message, &refusal.details, correlation, redactor);
                object.text("status", "error").part("error", &error)
            }
        };
        self.commit_event(caller, correlation.clone(), EventType::ToolCalled, object.finish())
            .await
    }

    async fn commit_event(
        &self,
        caller: &Caller,
        correlation: CorrelationId,
        kind: EventType,
        payload: Payload,
    ) -> Result<(), RecordError> {
        let ports = &self.ports;
        let event = Draft::new(
            ports.ids.event(),
            ports.clock.now(),
            correlation,
            caller.actor.clone(),
            kind,
            payload,
        );
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        self.commit(change).await.map(drop)
    }

    /// What every invocation says, however it came out.
    fn invocation(&self, caller: &Caller, call: &ToolCall, started: Timestamp) -> Object {
        let own = self.redactor_of_act(call);
        let redactor = own.as_ref().unwrap_or(&self.ports.redactor);
        let tool: String = redactor
            .redact_text(&call.tool)
            .chars()
            .take(limits::TOOL_NAME_CHARS_SHOWN)
            .collect();
        let took = self.ports.clock.now().as_millis() - started.as_millis();
        let object = Object::new()
            .text("tool", &tool)
            .part(
                "arguments",
                &Payload::from(&presentable_arguments(redactor, &self.shown_arguments(call))),
            )
            .text("credential", caller.credential.as_str())
            .optional_text("job_id", caller.job_id())
            .optional_text("run_id", caller.run_id())
            .text("transport", caller.transport.as_str())
            .text("started_at", &started.to_string())
            .whole("duration_ms", took.max(0));
        self.with_origin(object, &call.origin)
    }

    /// The session and the request that a call came in, where it has them.
    pub(super) fn with_origin(&self, object: Object, origin: &Origin) -> Object {
        let session = origin.session.as_ref().map(|session| session.mark());
        let rpc_id = origin.rpc_id.as_deref();
        let rpc_id = rpc_id.map(|id| presentable_id(&self.ports.redactor, id));
        object
            .optional_text("session_id", session.as_deref())
            .optional_text("rpc_id", rpc_id.as_deref())
    }

    /// Knows what a call brought along that its tool's schema says is only ever written; else as
    /// [`Self::redactor_of`].
    pub(super) fn redactor_of_act(&self, call: &ToolCall) -> Option<Redactor> {
        let names = self.write_only(&call.tool);
        let given: Vec<&str> = names
            .iter()
            .filter_map(|name| call.arguments.get(name)?.as_str())
            .collect();
        if given.is_empty() {
            return self.redactor_of(call);
        }
        Some(self.ports.redactor.holding(given))
    }

    /// Knows the secrets that a call gives by name, in its `env`, its line or its arguments: the command may print
    /// them. None where there are none.
    pub(super) fn redactor_of(&self, call: &ToolCall) -> Option<Redactor> {
        if let Some(tool) = self.in_force().policy.tools.declared().find(&call.tool) {
            let secrets = tool.secrets(&call.arguments);
            return self.ports.redactor.hiding(secrets.iter().map(String::as_str));
        }
        let given = |name: &str| call.arguments.get(name);
        let variables = given("env").and_then(Value::as_object).into_iter().flatten();
        let texts = variables.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        let line = given("command").and_then(Value::as_str);
        let program = given("file").and_then(Value::as_str).or(line);
        let args = given("args").and_then(Value::as_array).into_iter().flatten();
        let words: Vec<&str> = program.into_iter().chain(args.filter_map(Value::as_str)).collect();
        let in_line = line.map(named::in_line).unwrap_or_default();
        let secrets = named::in_variables(texts.take(limits::ENVIRONMENT_MAX))
            .chain(in_line.iter().map(String::as_str))
            .chain(named::in_args(&words));
        self.ports.redactor.hiding(secrets)
    }

    /// Names of the arguments that a tool's schema marks `writeOnly`.
    fn write_only(&self, tool: &str) -> Vec<String> {
        let offering = self.toolboxes().iter().find(|toolbox| toolbox.offers(tool));
        let definitions = offering.map(|toolbox| toolbox.definitions()).unwrap_or_default();
        let definition = definitions.into_iter().find(|definition| definition.name == tool);
        let schema = definition.map(|definition| definition.input_schema);
        let properties = schema.as_ref().and_then(|schema| schema["properties"].as_object());
        let marked = properties
            .into_iter()
            .flatten()
            .filter(|(_, field)| field["writeOnly"] == true);
        marked.map(|(name, _)| name.clone()).collect()
    }

    /// The arguments without what is only ever written.
    fn shown_arguments(&self, call: &ToolCall) -> Map<String, Value> {
        if let Some(tool) = self.in_force().policy.tools.declared().find(&call.tool) {
            return tool.masked(&call.arguments).0;
        }
        let mut shown = call.arguments.clone();
        for name in self.write_only(&call.tool) {
            if let Some(value) = shown.get_mut(&name) {
                *value = Value::from(REPLACEMENT);
            }
        }
        shown
    }

    /// The answer of a call that has none of its own.
    fn unanswered(&self, arguments: &Map<String, Value>, refusal: Refusal) -> Answer {
        let named = arguments.get("request_id").and_then(Value::as_str);
        let named = named.and_then(|id| RequestId::parse(id).ok());
        let request_id = named.unwrap_or_else(|| self.ports.ids.request());
        CommandResult::refused(request_id, self.ports.clock.now(), refusal).answer()
    }
}

/// A result less its output, which the command itself keeps; the counts stay.
fn without_output(redactor: &Redactor, structured: &Value) -> Payload {
    let mut facts = structured.as_object().cloned().unwrap_or_default();
    facts.retain(|name, _| name != "stdout" && name != "stderr");
    Payload::from(&redactor.redact_json(&Value::Object(facts)))
}

/// S2's status with the result or the error of an answer.
fn outcome(object: Object, answer: &Answer, correlation: &CorrelationId, redactor: &Redactor) -> Object {
    let facts = &answer.structured;
    match (answer.is_error, facts["error_code"].as_str().and_then(ErrorCode::parse)) {
        (true, code) => {
            let code = code.unwrap_or(ErrorCode::InternalError);
            let details = facts["error_details"].as_object().cloned().unwrap_or_default();
            let message = facts["error_message"].as_str().unwrap_or_default();
            let error = error(code, message, &details, correlation, redactor);
            object.text("status", "error").part("error", &error)
        }
        (false, _) => object
            .text("status", "ok")
            .part("result", &without_output(redactor, facts)),
    }
}

fn error(
    code: ErrorCode,
    message: &str,
    details: &Map<String, Value>,
    correlation: &CorrelationId,
    redactor: &Redactor,
) -> Payload {
    let details = redactor.redact_json(&Value::Object(details.clone()));
    let message = redactor.redact_text(message);
    Payload::from(&refusal_error(code, &message, &details, correlation.as_str()))
}
