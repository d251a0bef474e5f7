//! An entry in a TOML file: read, and put in place without touching anything else, comments included.

use anyhow::Context as _;
use serde_json::{Map, Value as Json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::Place;

pub(super) fn get(text: &str, place: Place<'_>) -> anyhow::Result<Option<Json>> {
    let document = parse(text)?;
    let Some(servers) = document.get(place.section) else {
        return Ok(None);
    };
    let servers = servers.as_table_like().with_context(|| not_a_table(place))?;
    Ok(servers.get(place.name).map(read))
}

pub(super) fn put(text: &str, place: Place<'_>, entry: &Map<String, Json>) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let servers = document.entry(place.section).or_insert_with(|| {
        let mut servers = Table::new();
        // Without a heading of its own: only its entries have one.
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let servers = servers.as_table_like_mut().with_context(|| not_a_table(place))?;
    match servers.get_mut(place.name).and_then(Item::as_table_like_mut) {
        Some(present) => fill(present, entry),
        None => {
            let mut table = Table::new();
            fill(&mut table, entry);
            servers.insert(place.name, Item::Table(table));
        }
    }
    Ok(document.to_string())
}

fn parse(text: &str) -> anyhow::Result<DocumentMut> {
    text.parse::<DocumentMut>().map_err(|error| {
        let message = error.message().replace('\n', "; ");
        match error.span() {
            Some(span) => {
                let before = text.get(..span.start).unwrap_or(text);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                anyhow::anyhow!("line {line}, column {column}: {message}")
            }
            None => anyhow::anyhow!("{message}"),
        }
    })
}

fn not_a_table(place: Place<'_>) -> String {
    format!("`{}` is not a table", place.section)
}

/// Makes a table say this, and leaves what says it already as it is written.
fn fill(table: &mut dyn TableLike, wanted: &Map<String, Json>) {
    let gone: Vec<String> = table
        .iter()
        .map(|(key, _)| key.to_owned())
        .filter(|key| !wanted.contains_key(key))
        .collect();
    for key in gone {
        table.remove(&key);
    }
    for (key, value) in wanted {
        match (table.get_mut(key), value) {
            (Some(present), value) if read(present) == *value => {}
            (Some(present), Json::Object(value)) if present.is_table_like() => {
                if let Some(present) = present.as_table_like_mut() {
                    fill(present, value);
                }
            }
            (Some(present), value) => {
                let mut new = written(value);
                // A comment behind the old value is a comment on the new one.
                if let Some(old) = present.as_value() {
                    *new.decor_mut() = old.decor().clone();
                }
                *present = Item::Value(new);
            }
            (None, value) => drop(table.insert(key, Item::Value(written(value)))),
        }
    }
}

fn read(item: &Item) -> Json {
    if let Some(table) = item.as_table_like() {
        return table.iter().map(|(key, item)| (key.to_owned(), read(item))).collect();
    }
    if let Some(tables) = item.as_array_of_tables() {
        return tables.iter().map(|table| read(&Item::Table(table.clone()))).collect();
    }
    item.as_value().map_or(Json::Null, read_value)
}

fn read_value(value: &Value) -> Json {
    match value {
        Value::String(it) => it.value().as_str().into(),
        Value::Integer(it) => (*it.value()).into(),
        Value::Float(it) => (*it.value()).into(),
        Value::Boolean(it) => (*it.value()).into(),
        Value::Datetime(it) => it.value().to_string().into(),
        Value::Array(items) => items.iter().map(read_value).collect(),
        Value::InlineTable(table) => table
            .iter()
            .map(|(key, value)| (key.to_owned(), read_value(value)))
            .collect(),
    }
}

fn written(value: &Json) -> Value {
    match value {
        // There is no such thing in TOML, and none of our entries has one.
        Json::Null => Value::from(""),
        Json::Bool(it) => Value::from(*it),
        Json::Number(it) => it
            .as_i64()
            .map_or_else(|| Value::from(it.as_f64().unwrap_or_default()), Value::from),
        Json::String(it) => Value::from(it.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(written).collect::<Array>()),
        Json::Object(members) => Value::InlineTable(
            members
                .iter()
                .map(|(key, value)| (key.clone(), written(value)))
                .collect::<InlineTable>(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLACE: Place<'static> = Place {
        section: "mcp_servers",
        name: "us",
    };

    #[track_caller]
    fn check(before: &str, after: &str) {
        let entry = json!({"command": "c", "args": ["x"]});
        let put = put(before, PLACE, entry.as_object().unwrap()).unwrap();
        assert_eq!(put, after);
        assert_eq!(get(&put, PLACE).unwrap(), Some(entry));
    }

    #[test]
    fn an_entry_stands_among_its_kind_however_they_are_written() {
        let us = "[mcp_servers.us]\ncommand = \"c\"\nargs = [\"x\"]\n";
        check("", us);
        check("a = 1\n", &format!("a = 1\n\n{us}"));
        check("[mcp_servers]\n", &format!("[mcp_servers]\n\n{us}"));
        check(
            "[mcp_servers.b]\nurl = \"u\"\n[z]\n",
            &format!("[mcp_servers.b]\nurl = \"u\"\n\n{us}[z]\n"),
        );
        check(
            "mcp_servers = { b = { url = \"u\" } }\n",
            "mcp_servers = { b = { url = \"u\" } , us = { command = \"c\", args = [\"x\"] } }\n",
        );
        check(
            "mcp_servers.b.url = \"u\"\na = 1\n",
            &format!("mcp_servers.b.url = \"u\"\na = 1\n\n{us}"),
        );
    }

    #[test]
    fn only_what_differs_in_an_entry_is_written_anew() {
        check(
            "[mcp_servers.us] # us\nargs = [ \"x\", ] # one\n# what runs\ncommand = 'd' # old\nurl = \"gone\"\n\n[z]\n",
            "[mcp_servers.us] # us\nargs = [ \"x\", ] # one\n# what runs\ncommand = \"c\" # old\n\n[z]\n",
        );
        check(
            "[mcp_servers]\nus = { command = \"d\", args = [\"x\"] }\n",
            "[mcp_servers]\nus = { command = \"c\", args = [\"x\"] }\n",
        );
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let text = "[mcp_servers.us]\na = 1\nb = 1.5\nc = true\nd = 2026-11-15\ne = [{ f = \"g\" }]\n[[mcp_servers.us.h]]\ni = 2\n";
        assert_eq!(
            get(text, PLACE).unwrap().unwrap(),
            json!({"a": 1, "b": 1.5, "c": true, "d": "2026-11-15", "e": [{"f": "g"}], "h": [{"i": 2}]})
        );
    }
}
