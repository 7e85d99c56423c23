//! Pandas metadata in a Parquet file, with which pandas restores the same table: the columns of the index, and types that
//! Parquet does not have.

use serde_json::{Value, json};

use crate::{
    column::Kind,
    frame::{Column, Head, Index, Label},
};

/// The key of [`metadata`] in a file, and in the schema that it has.
pub(crate) const KEY: &str = "pandas";
/// Key of `DataFrame.attrs` in the file's metadata.
pub(crate) const ATTRS_KEY: &str = "PANDAS_ATTRS";

/// The text of the file's key `pandas`.
pub(crate) fn metadata(head: &Head) -> String {
    let (index_columns, labels): (Vec<Value>, &[Option<String>]) = match &head.index {
        Index::Range { name, start, stop, step } => {
            (vec![json!({"kind": "range", "name": name, "start": start, "stop": stop, "step": step})], &[])
        }
        Index::Columns { names } => {
            (head.columns.iter().take(names.len()).map(|column| json!(column.name)).collect(), names)
        }
    };
    let columns: Vec<Value> = head
        .columns
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let label = labels.get(place).map_or(Some(&column.name), Option::as_ref);
            let (kind, more) = kind(column);
            json!({
                "name": label,
                "field_name": column.name,
                "pandas_type": kind,
                "numpy_type": numpy_type(column),
                "metadata": more,
            })
        })
        .collect();
    let label = |label: &Label| {
        let Label { name, pandas_type, numpy_type, metadata } = label;
        json!({"name": name, "field_name": name, "pandas_type": pandas_type, "numpy_type": numpy_type, "metadata": metadata})
    };
    let texts = || Label {
        name: None,
        pandas_type: "unicode".to_owned(),
        numpy_type: "object".to_owned(),
        metadata: Value::Null,
    };
    let labels = if head.labels.is_empty() { vec![label(&texts())] } else { head.labels.iter().map(label).collect() };
    let mut said = json!({
        "index_columns": index_columns,
        "column_indexes": labels,
        "columns": columns,
        "creator": {"library": "cellar", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "3.1.0",
    });
    if !head.more.is_null() {
        said["cellar"] = head.more.clone();
    }
    said.to_string()
}

/// Returns the numpy name of the type; for pandas' own types, the name of the type that the column can be converted to.
fn numpy_type(column: &Column) -> String {
    let own = column.dtype.as_str();
    let known = match &column.kind {
        // The values are numbers, what they are of is not.
        _ if column.extension.is_some() => own,
        Kind::Category { .. } => "int32",
        // The unit is that of the column.
        Kind::Timestamp { .. } => "datetime64[ns]",
        Kind::Duration { .. } => "timedelta64[ns]",
        Kind::Integer { .. } | Kind::Float { .. } => {
            let (kind, _) = kind(column);
            // One that may lack values has the name in capitals.
            return if own.eq_ignore_ascii_case(&kind) { own.to_owned() } else { kind };
        }
        Kind::Boolean if matches!(own, "bool" | "boolean") => own,
        Kind::Text { .. } if matches!(own, "str" | "string" | "string[python]" | "string[pyarrow]") => own,
        _ => "object",
    };
    known.to_owned()
}

/// Returns the pandas name of the type, and its metadata.
fn kind(column: &Column) -> (String, Value) {
    if column.extension.is_some() {
        return ("object".to_owned(), Value::Null);
    }
    named(&column.kind)
}

fn named(kind: &Kind) -> (String, Value) {
    let (kind, more) = match kind {
        Kind::Null => ("empty", Value::Null),
        Kind::Boolean => ("bool", Value::Null),
        Kind::Integer { bits, signed } => {
            return (format!("{}int{bits}", if *signed { "" } else { "u" }), Value::Null);
        }
        Kind::Float { bits } => return (format!("float{bits}"), Value::Null),
        Kind::Timestamp { zone: None, .. } => ("datetime", Value::Null),
        Kind::Timestamp { zone: Some(zone), .. } => ("datetimetz", json!({"timezone": zone})),
        Kind::Duration { .. } => ("timedelta", Value::Null),
        Kind::Date => ("date", Value::Null),
        Kind::Time => ("time", Value::Null),
        Kind::Decimal { precision, scale } => ("decimal", json!({"precision": precision, "scale": scale})),
        Kind::Uuid | Kind::Struct { .. } => ("object", Value::Null),
        Kind::List { item, .. } => return (format!("list[{}]", named(&item.kind).0), Value::Null),
        Kind::Text { .. } | Kind::Json { .. } => ("unicode", Value::Null),
        Kind::Binary { .. } => ("bytes", Value::Null),
        Kind::Category { count, ordered, .. } => ("categorical", json!({"num_categories": count, "ordered": ordered})),
    };
    (kind.to_owned(), more)
}
