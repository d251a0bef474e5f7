//! `database.lifecycle` as clients see it.

use serde_json::{Value, json};

use crate::catalog::definition::{Hints, ToolDefinition};

pub const NAME: &str = "database.lifecycle";
/// What a name may be: what needs no escaping anywhere, and PostgreSQL does not cut.
pub const DATABASE_NAME: &str = "^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$";

pub fn definition(environments: &[String]) -> ToolDefinition {
    let properties = json!({
        "environment": {"type": "string", "enum": environments, "description": "Which environment of the project it is for."},
        "action": {"type": "string", "enum": ["create", "delete", "describe"], "description": "describe looks and changes nothing; the others ask a person."},
        "database_name": {"type": "string", "pattern": DATABASE_NAME, "description": "The database."},
        "confirm_delete": {"type": "boolean", "description": "Must be true to delete."},
        "dry_run": {"type": "boolean", "description": "Says what would happen, and does nothing."},
    });
    ToolDefinition {
        name: NAME.into(),
        title: "Create, delete or describe a project's database".into(),
        description:
            "Creates and deletes databases of the project in one environment, by a person's approval, and describes \
            them without. A database that the project did not create here is never touched."
                .into(),
        input_schema: json!({
            "type": "object", "properties": properties, "additionalProperties": false,
            "required": ["environment", "action", "database_name"],
        }),
        output_schema: output(),
        version: "1.0.0".into(),
        hints: Hints {
            read_only: false,
            destructive: true,
            idempotent: true,
            open_world: true,
        },
    }
}

fn output() -> Value {
    let mut properties = super::super::control::result();
    for (name, schema) in [
        ("action", json!({"type": "string"})),
        ("database_name", json!({"type": "string"})),
        ("applied", json!({"type": "boolean"})),
        ("exists", json!({"type": "boolean"})),
        ("owned_by_project", json!({"type": "boolean"})),
        ("owner_project_id", json!({"type": ["string", "null"]})),
    ] {
        properties[name] = schema;
    }
    json!({"type": "object", "properties": properties, "required": ["status"]})
}
