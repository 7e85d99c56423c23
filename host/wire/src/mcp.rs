//! The tools that Cellar offers as an MCP server: their arguments, and the schemas of them.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use cellar_core::{
    cell::{Cell, Language},
    limits,
};
use serde_json::{Value, json};

use crate::{
    check::{At, Fields, Invalid, Problems},
    json::Node,
    request::{cell, cells as cells_of, language_names, languages},
    server::{body, bounded, name},
};

/// Bytes of a file that is written through a tool.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Bytes of a path.
const PATH_BYTES_MAX: usize = 4_096;
/// Members of a single cell.
const CELL: [&str; 5] = ["language", "code", "title", "timeout", "reset"];

/// A call of one of the tools.
#[derive(Debug)]
pub enum McpCall {
    /// Runs cells.
    Eval { session: Option<String>, cells: Vec<Cell> },
    /// Gives languages fresh kernels.
    Reset { session: String, languages: Vec<Language> },
    /// Keeps the state of a session.
    Snapshot { session: String },
    /// Opens a session with the state of another one, or with what was kept.
    Fork { session: Option<String>, snapshot: Option<String> },
    /// Does something with a file.
    Files { session: String, path: String, action: FileAction },
}

/// Operation of the tool for files.
#[derive(Debug, PartialEq, Eq)]
pub enum FileAction {
    List,
    Read,
    Write(String),
    Remove,
}

/// The names of the tools.
pub const MCP_TOOLS: [&str; 5] = ["eval", "reset", "snapshot", "fork", "files"];

/// Reads the arguments of a tool; none when there is no tool of that name.
pub fn mcp_call(tool: &str, arguments: &[u8]) -> Option<Result<McpCall, Invalid>> {
    Some(match tool {
        "eval" => {
            let known = ["session", "cells", "language", "code", "title", "timeout", "reset"];
            read(arguments, &known, |fields, problems| {
                let session = name(fields, "session", problems);
                Some(McpCall::Eval { session, cells: cells(fields, problems)? })
            })
        }
        "reset" => read(arguments, &["session", "language"], |fields, problems| {
            let languages = languages(fields.get("language").as_ref(), problems);
            let session = session(fields, problems);
            Some(McpCall::Reset { session: session?, languages: languages? })
        }),
        "snapshot" => read(arguments, &["session"], |fields, problems| {
            session(fields, problems).map(|session| McpCall::Snapshot { session })
        }),
        "fork" => read(arguments, &["session", "snapshot"], |fields, problems| {
            let (session, snapshot) = (name(fields, "session", problems), name(fields, "snapshot", problems));
            if session.is_some() == snapshot.is_some() {
                problems.add("$", "expected either `session` or `snapshot`");
            }
            Some(McpCall::Fork { session, snapshot })
        }),
        "files" => read(arguments, &["session", "action", "path", "text"], files),
        _ => return None,
    })
}

fn read<T>(
    bytes: &[u8],
    known: &[&str],
    read: impl FnOnce(&Fields<'_>, &mut Problems) -> Option<T>,
) -> Result<T, Invalid> {
    body(bytes, |at, problems| read(&at.fields(known, problems)?, problems))
}

fn session(fields: &Fields<'_>, problems: &mut Problems) -> Option<String> {
    fields.required("session", "the name of a session", problems)?;
    name(fields, "session", problems)
}

/// `cells`, or one cell whose members stand beside the session.
fn cells(fields: &Fields<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let single: Vec<(String, Node)> =
        CELL.iter().filter_map(|key| fields.get(key).map(|at| ((*key).to_owned(), at.node.clone()))).collect();
    if fields.get("cells").is_none() && !single.is_empty() {
        let node = Node::Object(single);
        return cell(&At::root(&node, "$"), problems).map(|cell| vec![cell]);
    }
    if !single.is_empty() {
        problems.add("$", "expected either `cells`, or one cell by its `language` and `code`");
    }
    cells_of(&fields.required("cells", "an array of at least one cell", problems)?, problems)
}

fn files(fields: &Fields<'_>, problems: &mut Problems) -> Option<McpCall> {
    let session = session(fields, problems);
    let path = fields.get("path").map_or(Some(String::new()), |at| bounded(&at, PATH_BYTES_MAX, problems));
    let text = fields.get("text").map(|at| bounded(&at, FILE_BYTES_MAX, problems));
    let action = fields.required("action", "`list`, `read`, `write` or `remove`", problems)?;
    let action = match (action.node, text) {
        (Node::Text(word), None) if word == "list" => FileAction::List,
        (Node::Text(word), None) if word == "read" => FileAction::Read,
        (Node::Text(word), None) if word == "remove" => FileAction::Remove,
        (Node::Text(word), Some(text)) if word == "write" => FileAction::Write(text?),
        (Node::Text(word), None) if word == "write" => {
            problems.add("$.text", "expected the text to write, found nothing");
            return None;
        }
        (Node::Text(word), Some(_)) if matches!(word.as_str(), "list" | "read" | "remove") => {
            problems.add("$.text", "only has a meaning where a file is written");
            return None;
        }
        _ => {
            action.expected("`list`, `read`, `write` or `remove`", problems);
            return None;
        }
    };
    Some(McpCall::Files { session: session?, path: path?, action })
}

/// The schema of a tool's arguments, where cells may be in these languages.
pub fn mcp_schema(tool: &str, languages: &[Language]) -> Value {
    let languages = language_names(languages);
    let session = json!({"type": "string", "description": "Name of a session, as an earlier answer has it."});
    let seconds = json!({
        "type": "number", "minimum": limits::TIMEOUT_MIN.as_secs_f64(), "maximum": limits::TIMEOUT_MAX.as_secs(),
        "description": "Seconds that the cell may take.",
    });
    let cell = json!({
        "language": {"type": "string", "enum": languages},
        "code": {"type": "string"},
        "title": {"type": "string", "description": "A short label."},
        "timeout": seconds,
        "reset": {"type": "boolean", "description": "Begin with a fresh kernel: names, imports and tasks of the language go, files and tools stay."},
    });
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    match tool {
        "eval" => {
            let mut properties = cell.clone();
            let mut one = object(cell, &["language", "code"]);
            one["description"] = "One unit of source.".into();
            properties["session"] = json!({
                "type": "string",
                "description": "Session whose names and files the cells use; a new one when absent.",
            });
            properties["cells"] = json!({
                "type": "array", "minItems": 1, "maxItems": limits::CELLS_MAX, "items": one,
                "description": "Several cells, in order, in the place of `language` and `code`. The first that fails is the last that runs.",
            });
            object(properties, &[])
        }
        "reset" => object(json!({"session": session, "language": {"type": "string", "enum": languages}}), &["session"]),
        "fork" => object(
            json!({"session": session, "snapshot": {"type": "string", "description": "A snapshot to go on from, in the place of a session."}}),
            &[],
        ),
        "files" => object(
            json!({
                "session": session,
                "action": {"type": "string", "enum": ["list", "read", "write", "remove"]},
                "path": {"type": "string", "description": "Relative to the workspace."},
                "text": {"type": "string", "description": "What to write."},
            }),
            &["session", "action"],
        ),
        _ => object(json!({"session": session}), &["session"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::LANGUAGES;

    fn check(tool: &str, arguments: Value, faults: &[&str]) {
        let read = mcp_call(tool, arguments.to_string().as_bytes()).expect("a tool");
        let found = read.map(drop).map_or_else(|invalid| invalid.problems, |()| Vec::new());
        assert_eq!(found, faults, "{tool} {arguments}");
        if faults.is_empty() {
            let schema = jsonschema::validator_for(&mcp_schema(tool, &LANGUAGES)).expect("a schema");
            assert!(schema.is_valid(&arguments), "{tool} {arguments}");
        }
    }

    #[test]
    fn arguments_are_read_as_their_schemas_have_them() {
        check("eval", json!({"language": "py", "code": "1"}), &[]);
        check("eval", json!({"session": "s", "cells": [{"language": "js", "code": "1", "timeout": 5}]}), &[]);
        check("reset", json!({"session": "s", "language": "py"}), &[]);
        check("snapshot", json!({"session": "s"}), &[]);
        check("fork", json!({"snapshot": "snap-1"}), &[]);
        check("files", json!({"session": "s", "action": "list"}), &[]);
        check("files", json!({"session": "s", "action": "write", "path": "a", "text": ""}), &[]);
        check("eval", json!({"language": "py", "code": 1}), &["$.code: expected a string, found 1"]);
        check("eval", json!({}), &["$.cells: expected an array of at least one cell, found nothing"]);
        check("eval", json!({"code": "1"}), &["$.language: expected \"py\" or \"js\", found nothing"]);
        check("reset", json!({}), &["$.session: expected the name of a session, found nothing"]);
        check("fork", json!({}), &["$: expected either `session` or `snapshot`"]);
        check(
            "files",
            json!({"session": "s", "action": "write"}),
            &["$.text: expected the text to write, found nothing"],
        );
        assert!(mcp_call("other", b"{}").is_none());
    }
}
