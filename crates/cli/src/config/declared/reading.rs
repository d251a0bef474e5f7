//! One tool file: from its tree to tools, or to every problem with its place.

use std::path::Path;
use std::time::Duration;

use countersign_gateway::audit::chain;
use countersign_gateway::catalog::definition::{Hints, ToolDefinition};
use countersign_gateway::policy::effective::ToolApproval;
use countersign_gateway::policy::matrix;
use countersign_gateway::tools::declared::schema::{Schema, SchemaError};
use countersign_gateway::tools::declared::usage::{ToolLimits, Usage};
use countersign_gateway::tools::declared::{DeclaredTool, published_output};

use super::{Desk, executor, flag, keys, text, whole, word};
use crate::config::shape::Faults;
use crate::config::tree::{Node, Value};

const TOOL: &[&str] = &[
    "name",
    "title",
    "description",
    "version",
    "annotations",
    "input_schema",
    "output_schema",
    "approval",
    "timeout_ms",
    "limits",
    "executor",
];
const HINTS: &[&str] = &[
    "title",
    "read_only_hint",
    "destructive_hint",
    "idempotent_hint",
    "open_world_hint",
];
const LIMITS: &[&str] = &["concurrency", "rate_per_minute", "max_total"];
const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 4_000;
/// A service may have to wait for people.
const TIMEOUT_MS_MAX: u64 = 24 * 3_600 * 1_000;

pub(super) fn tools(tree: &Node, path: &Path, desk: &mut Desk<'_>, faults: &mut Faults) -> Vec<DeclaredTool> {
    if matches!(tree.value, Value::Null) {
        return Vec::new();
    }
    keys(tree, "file", &["tools"], faults);
    let Some(list) = tree.get("tools") else {
        faults.push((tree.at, "a tool file has a list `tools`".to_owned()));
        return Vec::new();
    };
    if !matches!(list.value, Value::List(_)) {
        faults.push((list.at, "`tools` must be a list of tools".to_owned()));
    }
    let tools = list.items().iter();
    tools.filter_map(|node| tool(node, path, desk, faults)).collect()
}

fn tool(node: &Node, path: &Path, desk: &mut Desk<'_>, faults: &mut Faults) -> Option<DeclaredTool> {
    let before = faults.len();
    keys(node, "tools", TOOL, faults);
    let place = match node.at {
        Some(at) => format!("tool file {}, {at}", path.display()),
        None => format!("tool file {}", path.display()),
    };
    let name = name(node, &place, desk, faults);
    let description = needed(node, "description", faults).and_then(|it| text(it, "description", faults));
    if description.is_some_and(|it| it.trim().is_empty() || it.chars().count() > DESCRIPTION_CHARS_MAX) {
        let message = format!("`description` must have 1 to {DESCRIPTION_CHARS_MAX} characters");
        faults.push((node.get("description").and_then(|it| it.at), message));
    }
    let title = node.get("title").and_then(|it| text(it, "title", faults));
    let version = node.get("version").and_then(|it| text(it, "version", faults));
    let (hints, hinted) = hints(node, faults);
    let input =
        needed(node, "input_schema", faults).and_then(|it| schema(it, "input_schema", Schema::of_arguments, faults));
    let output = node
        .get("output_schema")
        .map(|it| schema(it, "output_schema", Schema::new, faults));
    // Absence denies: whoever says nothing is asked.
    let approval = match node.get("approval") {
        Some(it) => word(it, "approval", ToolApproval::WORDS, faults),
        None => Some(ToolApproval::Required),
    };
    let timeout = needed(node, "timeout_ms", faults).and_then(|it| whole(it, "timeout_ms", TIMEOUT_MS_MAX, faults));
    let limits = limits(node, faults);
    let executor = needed(node, "executor", faults).and_then(|it| executor::read(it, input.as_ref(), desk, faults));
    if faults.len() > before {
        return None;
    }
    let (name, description, input, executor) = (name?, description?, input?, executor?);
    let output = output.flatten();
    let title = title.or(hinted).unwrap_or(&name);
    Some(DeclaredTool {
        definition: ToolDefinition {
            title: title.to_owned().into(),
            description: description.to_owned().into(),
            input_schema: input.written().clone(),
            output_schema: published_output(&executor, output.as_ref()),
            version: version.unwrap_or("1.0.0").to_owned().into(),
            hints,
            name: name.into(),
        },
        approval: approval?,
        timeout: Duration::from_millis(timeout?),
        usage: Usage::new(limits),
        digest: chain::digest(&node.to_json()),
        source: place,
        executor,
        input,
        output,
    })
}

fn needed<'n>(node: &'n Node, field: &str, faults: &mut Faults) -> Option<&'n Node> {
    let found = node.get(field);
    if found.is_none() {
        faults.push((node.at, format!("`{field}` is missing")));
    }
    found
}

fn name(node: &Node, place: &str, desk: &mut Desk<'_>, faults: &mut Faults) -> Option<String> {
    let at = needed(node, "name", faults)?;
    let name = text(at, "name", faults)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
        let message = format!("`name` must be 1 to {NAME_CHARS_MAX} letters, digits, `_`, `-` or `.`");
        faults.push((at.at, message));
        return None;
    }
    if matrix::tools().iter().any(|known| known.name == name) {
        faults.push((
            at.at,
            format!("`{name}` is a tool of this program; choose another name"),
        ));
        return None;
    }
    if let Some(first) = desk.known.get(name) {
        faults.push((at.at, format!("`{name}` is declared already, in {first}")));
        return None;
    }
    desk.known.insert(name.to_owned(), place.to_owned());
    Some(name.to_owned())
}

fn schema(
    node: &Node,
    field: &str,
    make: impl FnOnce(serde_json::Value) -> Result<Schema, SchemaError>,
    faults: &mut Faults,
) -> Option<Schema> {
    match make(node.to_json()) {
        Ok(schema) => Some(schema),
        Err(error) => {
            faults.push((node.at, format!("`{field}` {error}")));
            None
        }
    }
}

fn hints<'n>(node: &'n Node, faults: &mut Faults) -> (Hints, Option<&'n str>) {
    let mut hints = Hints {
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
    };
    let Some(given) = node.get("annotations") else {
        return (hints, None);
    };
    keys(given, "annotations", HINTS, faults);
    let mut set = |name: &str, hint: &mut bool| {
        if let Some(flag) = given.get(name).and_then(|it| flag(it, name, faults)) {
            *hint = flag;
        }
    };
    set("read_only_hint", &mut hints.read_only);
    set("destructive_hint", &mut hints.destructive);
    set("idempotent_hint", &mut hints.idempotent);
    set("open_world_hint", &mut hints.open_world);
    let title = given.get("title").and_then(|it| text(it, "annotations.title", faults));
    (hints, title)
}

fn limits(node: &Node, faults: &mut Faults) -> ToolLimits {
    let mut limits = ToolLimits::default();
    let Some(given) = node.get("limits") else {
        return limits;
    };
    keys(given, "limits", LIMITS, faults);
    let mut number = |name: &str, most: u64| given.get(name).and_then(|it| whole(it, name, most, faults));
    limits.concurrency = number("concurrency", 1_024).and_then(|it| usize::try_from(it).ok());
    limits.rate_per_minute = number("rate_per_minute", 100_000).and_then(|it| usize::try_from(it).ok());
    limits.max_total = number("max_total", u64::from(u32::MAX));
    limits
}
