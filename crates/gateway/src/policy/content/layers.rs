//! The layers of tool policy as they are recorded, which is also how a configuration is held once it
//! is checked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{ContentError, Reader, Result, texts};
use crate::policy::approvers::ApprovalMode;
use crate::policy::effective::ToolApproval;
use crate::policy::matrix::KnownTool;
use crate::policy::merge::{Act, Action, Entry, Scope, ToolPolicy, Within};
use crate::policy::tools::{Hand, LabelPolicy, Layers, MatrixEntry, ProjectPolicy};

/// All layers, as fields of the policy's content.
pub(crate) fn write(layers: &Layers) -> Value {
    json!({
        "tools": layers.matrix.iter().map(matrix_entry).collect::<Vec<_>>(),
        "policies": {
            "agents": map(&layers.agents, |entries| json!({"tools": list(entries)})),
            "labels": map(&layers.labels, |label| json!({
                "tools": list(&label.entries), "agent_key": label.agent_key, "agent": label.agent,
                "runtime": label.runtime,
            })),
            "projects": map(&layers.projects, |project| json!({
                "tools": list(&project.entries), "repositories": project.repositories,
                "namespace": project.namespace, "source": project.source,
            })),
        },
        "catalog": layers.tools.iter().map(known_tool).collect::<Vec<_>>(),
        "default_matrix": list(&layers.defaults),
        "run_catalog": list(&layers.run_catalog),
        "outside_catalog": list(&layers.outside_catalog),
    })
}

pub(super) fn read(content: &Value) -> Result<Layers> {
    let read = Reader(content);
    let policies = &content["policies"];
    Ok(Layers {
        tools: read.each("catalog", read_known_tool)?,
        defaults: read.each("default_matrix", read_entry)?,
        run_catalog: read.each("run_catalog", read_entry)?,
        // Records of before there were runs have none.
        outside_catalog: read.each("outside_catalog", read_entry).unwrap_or_default(),
        matrix: read.each("tools", read_matrix_entry)?,
        agents: read_section(&policies["agents"], read_entries)?,
        labels: read_section(&policies["labels"], read_label)?,
        projects: read_section(&policies["projects"], read_project)?,
    })
}

/// One entry of a layer as it is recorded, which is also how a configuration is held once checked:
/// `scope` may be a word for the run's own, or name what it is limited to.
pub fn read_entry(value: &Value) -> Result<Entry> {
    let read = Reader(value);
    let names = |name: &str| (!value[name].is_null()).then(|| texts(&value[name]).into_iter().collect());
    let actions = |word: &String| Action::parse(word).ok_or(ContentError::Field("actions"));
    Ok(Entry {
        pattern: read.text("pattern")?,
        policy: ToolPolicy {
            approval: match &value["approval"] {
                Value::Null => None,
                _ => Some(read.word("approval", ToolApproval::parse)?),
            },
            enabled: value["enabled"].as_bool(),
            actions: match &value["actions"] {
                Value::Null => None,
                list => Some(texts(list).iter().map(actions).collect::<Result<BTreeSet<_>>>()?),
            },
            scope: read_scope(&value["scope"]),
            roles: names("roles"),
            labels: names("labels"),
            approvers: match &value["approvers"] {
                Value::Null => None,
                _ => Some(read.word("approvers", ApprovalMode::parse)?),
            },
        },
        source: read.text("source")?,
    })
}

fn read_scope(scope: &Value) -> Scope {
    let within = |name: &str| match (scope.as_str(), &scope[name]) {
        (Some(word), _) => (word == name).then_some(Within::Own),
        (None, Value::Null) => None,
        (None, Value::Bool(_)) => Some(Within::Own),
        (None, Value::String(only)) => Some(Within::AnyOf(BTreeSet::from([only.clone()]))),
        (None, names) => Some(Within::AnyOf(texts(names).into_iter().collect())),
    };
    Scope {
        namespace: within("namespace"),
        cluster: within("cluster"),
        repository: within("repository"),
    }
}

fn entry(entry: &Entry) -> Value {
    let policy = &entry.policy;
    let mut fields = json!({"pattern": entry.pattern, "source": entry.source});
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields[name] = value;
        }
    };
    set("approval", policy.approval.map(|approval| json!(approval.as_str())));
    set("enabled", policy.enabled.map(Value::from));
    let words = |actions: &BTreeSet<Action>| json!(actions.iter().map(|action| action.as_str()).collect::<Vec<_>>());
    set("actions", policy.actions.as_ref().map(words));
    set("roles", policy.roles.as_ref().map(|names| json!(names)));
    set("labels", policy.labels.as_ref().map(|names| json!(names)));
    set("approvers", policy.approvers.map(|mode| json!(mode.as_str())));
    let within = |within: &Within| match within {
        Within::Own => json!(true),
        Within::AnyOf(names) => json!(names),
    };
    let scope: Map<String, Value> = [
        ("namespace", &policy.scope.namespace),
        ("cluster", &policy.scope.cluster),
        ("repository", &policy.scope.repository),
    ]
    .into_iter()
    .filter_map(|(name, names)| Some((name.to_owned(), within(names.as_ref()?))))
    .collect();
    set("scope", (!scope.is_empty()).then_some(Value::Object(scope)));
    fields
}

fn matrix_entry(known: &MatrixEntry) -> Value {
    let mut fields = entry(&known.entry);
    fields["sets"] = json!(known.hand == Hand::Sets);
    fields
}

/// One entry of the matrix as it is recorded.
pub fn read_matrix_entry(value: &Value) -> Result<MatrixEntry> {
    Ok(MatrixEntry {
        entry: read_entry(value)?,
        hand: if value["sets"] == json!(true) {
            Hand::Sets
        } else {
            Hand::Tightens
        },
    })
}

/// What is configured for a label.
pub fn read_label(value: &Value) -> Result<LabelPolicy> {
    let read = Reader(value);
    Ok(LabelPolicy {
        entries: read.each("tools", read_entry)?,
        agent_key: read.optional_text("agent_key"),
        agent: read.optional_text("agent"),
        runtime: read.optional_text("runtime"),
    })
}

/// What is configured for a project.
pub fn read_project(value: &Value) -> Result<ProjectPolicy> {
    let read = Reader(value);
    Ok(ProjectPolicy {
        entries: read.each("tools", read_entry)?,
        repositories: texts(&value["repositories"]),
        namespace: read.optional_text("namespace"),
        source: read.optional_text("source").unwrap_or_default(),
    })
}

/// The tool entries of a key.
pub fn read_entries(value: &Value) -> Result<Vec<Entry>> {
    Reader(value).each("tools", read_entry)
}

/// Every key of a section with what is configured for it.
pub fn read_section<T>(section: &Value, read: impl Fn(&Value) -> Result<T>) -> Result<BTreeMap<String, T>> {
    let fields = section.as_object().into_iter().flatten();
    fields.map(|(key, value)| Ok((key.clone(), read(value)?))).collect()
}

fn known_tool(tool: &KnownTool) -> Value {
    let acts: Map<String, Value> = tool
        .acts
        .iter()
        .map(|(name, act)| (name.clone(), json!(act.as_str())))
        .collect();
    json!({"name": tool.name, "act": tool.act.as_str(), "acts": acts})
}

fn read_known_tool(value: &Value) -> Result<KnownTool> {
    let read = Reader(value);
    let act = |word: &Value| word.as_str().and_then(Act::parse).ok_or(ContentError::Field("acts"));
    Ok(KnownTool {
        name: read.text("name")?,
        act: act(&value["act"])?,
        acts: read
            .object("acts")?
            .iter()
            .map(|(name, word)| Ok((name.clone(), act(word)?)))
            .collect::<Result<_>>()?,
    })
}

fn list(entries: &[Entry]) -> Vec<Value> {
    entries.iter().map(entry).collect()
}

fn map<T>(keys: &BTreeMap<String, T>, value: impl Fn(&T) -> Value) -> Value {
    Value::Object(keys.iter().map(|(key, it)| (key.clone(), value(it))).collect())
}
