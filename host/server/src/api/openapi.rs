//! The API description: made of the routes, and of the schemas of what is read and written.

use std::sync::OnceLock;

use axum_core::response::IntoResponse;
use bytes::Bytes;
use cellar_wire::server_schemas;
use http::header;
use serde_json::{Map, Value, json};

use super::datasets::PARQUET_TYPE;
use super::operations::{Content, Kind, OPERATIONS, Operation};
use crate::problem::Answer;

/// Version of OpenAPI: the latest that generators of clients read.
const VERSION: &str = "3.1.1";

/// `GET /openapi.json`, for which no token is needed.
pub(crate) fn show() -> Answer {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| serde_json::to_vec(&document()).unwrap_or_default().into());
    Ok(([(header::CONTENT_TYPE, "application/json")], text.clone()).into_response())
}

/// The API description of the server.
pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_ascii_lowercase()] = described(operation);
    }
    let mut schemas = Value::Object(server_schemas());
    leave_out_no_defaults(&mut schemas);
    any_by_objects(&mut schemas);
    json!({
        "openapi": VERSION,
        "info": {
            "title": "Cellar",
            "version": "1",
            "description": "Runs Python and JavaScript cells in sandboxes, and keeps their state between cells.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "`cellar token new` makes one." },
            },
            "responses": {
                "Problem": {
                    "description": "The request was refused",
                    "content": { "application/problem+json": { "schema": reference("Problem") } },
                },
            },
        },
    })
}

/// Removes defaults that are null: an absent member has none, and may not be null.
fn leave_out_no_defaults(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("default").is_some_and(Value::is_null) {
                members.shift_remove("default");
            }
            members.values_mut().for_each(leave_out_no_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_no_defaults),
        _ => {}
    }
}

/// Writes schemas that any value fits as `{}`: generators of clients stumble at `true`.
fn any_by_objects(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match (key.as_str(), &value) {
                    ("items", Value::Bool(true)) => *value = json!({}),
                    ("properties", _) => {
                        let properties = value.as_object_mut().into_iter().flat_map(|object| object.values_mut());
                        properties.for_each(|schema| match schema {
                            Value::Bool(true) => *schema = json!({}),
                            schema => any_by_objects(schema),
                        });
                    }
                    _ => any_by_objects(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(any_by_objects),
        _ => {}
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn described(operation: &Operation) -> Value {
    let words = operation.path.split('/').skip(2).map(|part| part.trim_matches(['{', '}']));
    let id = words.fold(operation.method.to_ascii_lowercase(), |id, word| id + "_" + word);
    let mut parameters: Vec<Value> = operation
        .names()
        .iter()
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    for (name, kind, about) in operation.query {
        let schema = match kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Number => json!({"type": "integer", "minimum": 0}),
            Kind::Language => json!({"type": "string", "enum": ["py", "js"]}),
        };
        parameters.push(json!({"name": name, "in": "query", "description": about, "schema": schema}));
    }
    let (status, content) = operation.answer;
    if operation.method == "POST" && (status == 201 || matches!(content, Content::Run(_))) {
        let about = "The same request with the same key is carried out once in 24 hours";
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "description": about,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }));
    }
    let mut responses = Map::new();
    responses.insert(status.to_string(), answered(content));
    if let (Content::Run(_), "POST") = (content, operation.method) {
        let about = "With `Prefer: respond-async`: the run goes on by itself";
        let content = json!({"application/json": {"schema": reference("Run")}});
        responses.insert("202".to_owned(), json!({"description": about, "content": content}));
    }
    if operation.method == "PUT" {
        responses.insert("204".to_owned(), json!({"description": "The file was there, and is replaced"}));
    }
    if content == Content::Socket {
        responses.remove("200");
        responses.insert("101".to_owned(), json!({"description": "A WebSocket of the subprotocol `cellar.v1`"}));
    }
    responses.insert("default".to_owned(), json!({"$ref": "#/components/responses/Problem"}));
    let mut described =
        json!({"operationId": id, "summary": operation.summary, "parameters": parameters, "responses": responses});
    match operation.body {
        None => {}
        Some(("", "")) => {
            let bytes = json!({"type": "string", "format": "binary", "description": "A Parquet file."});
            let content = json!({"application/octet-stream": {"schema": bytes}});
            described["requestBody"] = json!({"required": true, "content": content});
        }
        Some(("", example)) => {
            let bytes = json!({"schema": {"type": "string", "format": "binary"}, "example": example});
            let tar = json!({"schema": {"type": "string", "format": "binary"}});
            described["requestBody"] =
                json!({"content": {"application/octet-stream": bytes, "application/x-tar": tar}});
        }
        Some((schema, example)) => {
            let example: Value = serde_json::from_str(example).unwrap_or_default();
            let content = json!({"application/json": {"schema": reference(schema), "example": example}});
            described["requestBody"] = json!({"required": true, "content": content});
        }
    }
    described
}

fn answered(content: Content) -> Value {
    let bytes = || json!({"schema": {"type": "string", "format": "binary"}});
    let (about, content) = match content {
        Content::Empty => return json!({"description": "It is done"}),
        Content::Json(name) => ("It is done", json!({"application/json": {"schema": reference(name)}})),
        Content::Object => ("It is done", json!({"application/json": {"schema": {"type": "object"}}})),
        Content::Run(name) => {
            let mut content = json!({});
            if name != "StreamLine" {
                content["application/json"] = json!({"schema": reference(name)});
            }
            // This version of OpenAPI has no schema for the items of a stream.
            content["application/x-ndjson"] = json!({
                "schema": {"type": "string", "description": "Lines, each a JSON value of the schema `StreamLine`."},
                "x-item-schema": reference("StreamLine"),
            });
            content["text/event-stream"] = json!({
                "schema": {
                    "type": "string",
                    "description": "Events, whose `id` names the run and the number of the event, and whose `data` is a JSON value of the \
                                    schema `StreamLine`.",
                },
                "x-item-schema": reference("StreamLine"),
            });
            (
                "What came of the run: a cell that raises is a result as well. As lines, or server-sent events, each of its events",
                content,
            )
        }
        Content::Bytes => (
            "Bytes, or the range of them that was asked for",
            json!({"application/octet-stream": bytes(), PARQUET_TYPE: bytes(), "text/plain": bytes()}),
        ),
        Content::FileOrFolder => (
            "A file, or the range of it that was asked for; what is in a folder",
            json!({
                "application/octet-stream": bytes(),
                "application/json": {"schema": reference("Folder")},
                "application/x-tar": bytes(),
            }),
        ),
        Content::Socket => return json!({"description": "Never"}),
    };
    json!({"description": about, "content": content})
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// With `CELLAR_BLESS=1` the file is rewritten.
    #[test]
    fn the_description_is_the_one_that_is_checked_in() {
        let found = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/openapi/openapi.json");
        if std::env::var_os("CELLAR_BLESS").is_some() {
            fs::write(&path, &found).expect("written");
        }
        assert_eq!(found, fs::read_to_string(path).expect("the description"), "`make bless` accepts it");
    }

    #[test]
    fn every_example_is_json_and_fits_its_schema() {
        let schemas = server_schemas();
        for operation in OPERATIONS {
            let Some((name, example)) = operation.body.filter(|(name, _)| !name.is_empty()) else { continue };
            assert!(schemas.contains_key(name), "{name}");
            let example: Value = serde_json::from_str(example).expect("JSON");
            let schema = json!({"$ref": format!("#/components/schemas/{name}"), "components": {"schemas": schemas}});
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            assert!(validator.is_valid(&example), "{name}: {example}");
        }
    }
}
