//! TOML as a document whose members stay in order.

use cellar_wire::json::Node;
use serde_json::Number;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Reads a text in TOML. Members stay in the order in which they were written, which the order of arguments follows.
///
/// # Errors
/// The text is not TOML.
pub(super) fn from_toml(text: &str) -> Result<Node, toml::de::Error> {
    let table: toml::Table = text.parse()?;
    let told = DeTable::parse(text)?;
    Ok(table_in_order(table, told.get_ref()))
}

fn in_order(value: toml::Value, told: Option<&DeValue<'_>>) -> Node {
    match value {
        toml::Value::Boolean(value) => Node::Boolean(value),
        toml::Value::Integer(value) => Node::Number(value.into()),
        toml::Value::Float(value) => Number::from_f64(value).map_or(Node::Other("not a number"), Node::Number),
        toml::Value::String(value) => Node::Text(value),
        toml::Value::Datetime(_) => Node::Other("a date"),
        toml::Value::Array(items) => {
            let told = told.and_then(DeValue::as_array);
            let told = |index: usize| told.and_then(|told| told.get(index)).map(Spanned::get_ref);
            Node::Array(items.into_iter().enumerate().map(|(index, item)| in_order(item, told(index))).collect())
        }
        toml::Value::Table(table) => match told.and_then(DeValue::as_table) {
            Some(told) => table_in_order(table, told),
            None => Node::Object(table.into_iter().map(|(key, value)| (key, in_order(value, None))).collect()),
        },
    }
}

fn table_in_order(mut table: toml::Table, told: &DeTable<'_>) -> Node {
    let mut keys: Vec<_> = told.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    let members = keys.into_iter().filter_map(|(key, told)| {
        let (key, value) = table.remove_entry(key.get_ref().as_ref())?;
        Some((key, in_order(value, Some(told.get_ref()))))
    });
    Node::Object(members.collect())
}
