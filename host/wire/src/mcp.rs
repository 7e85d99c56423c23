//! The tools that Cellar offers as an MCP server: their arguments, and the schemas of them.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::time::Duration;

use cellar_core::{
    cell::{Cell, Language},
    limits,
};
use serde_json::{Value, json};

use crate::{
    check::{At, Fields, Invalid, Problems},
    json::Node,
    request::{CELL_KEYS, LANGUAGE_NAMES, cell, cells as cells_of, languages},
    server::{body, bounded, name},
};

/// Bytes of a file that is written through a tool.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Bytes of a path.
const PATH_BYTES_MAX: usize = 4_096;

/// A call of one of the tools. One that names no session is for the session of its connection.
#[derive(Debug)]
pub enum McpCall {
    /// Runs cells.
    Eval { session: Option<String>, cells: Vec<Cell> },
    /// Gives languages fresh kernels.
    Reset { session: Option<String>, languages: Vec<Language> },
    /// Keeps the state of a session.
    Snapshot { session: Option<String> },
    /// Opens a session with the state of another one, or with what was kept.
    Fork { session: Option<String>, snapshot: Option<String> },
    /// Runs a command of the shell.
    Shell { session: Option<String>, command: String, timeout: Option<Duration>, stdin: Option<String> },
    /// Does something with a file.
    Files { session: Option<String>, path: String, action: FileAction },
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
pub const MCP_TOOLS: [&str; 6] = ["eval", "shell", "reset", "snapshot", "fork", "files"];

/// Reads the arguments of a tool; none when there is no tool of that name.
pub fn mcp_call(tool: &str, arguments: &[u8]) -> Option<Result<McpCall, Invalid>> {
    Some(match tool {
        "eval" => {
            let known = ["session", "cells", "language", "code", "title", "timeout", "reset"];
            read(arguments, &known, |fields, problems| {
                let session = optional(fields, "session", problems);
                Some(McpCall::Eval { session, cells: cells(fields, problems)? })
            })
        }
        "reset" => read(arguments, &["session", "language"], |fields, problems| {
            let languages = languages(fields.get("language").as_ref(), problems);
            let session = optional(fields, "session", problems);
            Some(McpCall::Reset { session, languages: languages? })
        }),
        "snapshot" => read(arguments, &["session"], |fields, problems| {
            Some(McpCall::Snapshot { session: optional(fields, "session", problems) })
        }),
        "fork" => read(arguments, &["session", "snapshot"], |fields, problems| {
            let (session, snapshot) = (optional(fields, "session", problems), optional(fields, "snapshot", problems));
            if session.is_some() && snapshot.is_some() {
                problems.add("$", "expected either `session` or `snapshot`");
            }
            Some(McpCall::Fork { session, snapshot })
        }),
        "shell" => read(arguments, &["session", "command", "timeout", "stdin"], |fields, problems| {
            let session = optional(fields, "session", problems);
            let range = limits::TIMEOUT_MIN..=limits::TIMEOUT_MAX;
            let timeout = fields.get("timeout").and_then(|at| at.seconds(range, problems));
            let stdin = fields.get("stdin").and_then(|at| bounded(&at, FILE_BYTES_MAX, problems));
            let command = fields.required("command", "a command", problems)?;
            let command = bounded(&command, FILE_BYTES_MAX, problems)?;
            Some(McpCall::Shell { session, command, timeout, stdin })
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

/// A name that may be left out. Models fill what they leave out with an empty string or null.
fn optional(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Option<String> {
    match fields.get(key)?.node {
        Node::Null => None,
        Node::Text(text) if text.trim().is_empty() => None,
        _ => name(fields, key, problems),
    }
}

/// `cells`, or one cell whose members stand beside the session.
fn cells(fields: &Fields<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let single: Vec<(String, Node)> =
        CELL_KEYS.iter().filter_map(|key| fields.get(key).map(|at| ((*key).to_owned(), at.node.clone()))).collect();
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
    let session = optional(fields, "session", problems);
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
    Some(McpCall::Files { session, path: path?, action })
}

/// The schema of a tool's arguments, where cells may be in these languages.
pub fn mcp_schema(tool: &str, languages: &[Language]) -> Value {
    let offered = LANGUAGE_NAMES.iter().filter(|(language, _)| languages.contains(language));
    let languages: Vec<&str> = offered.flat_map(|(_, names)| *names).collect();
    let session = json!({"type": "string", "description": "Name of a session; that of this connection when absent."});
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
                "description": "Session whose names and files the cells use: leave it out to go on in that of this connection. Any other \
                                name of letters, digits, `-` and `_` opens a separate session, or goes on with it.",
            });
            properties["cells"] = json!({
                "type": "array", "minItems": 1, "maxItems": limits::CELLS_MAX, "items": one,
                "description": "Several cells, in order, in the place of `language` and `code`. The first that fails is the last that runs.",
            });
            object(properties, &[])
        }
        "reset" => object(json!({"session": session, "language": {"type": "string", "enum": languages}}), &[]),
        "fork" => object(
            json!({"session": session, "snapshot": {"type": "string", "description": "A snapshot to go on from, in the place of a session."}}),
            &[],
        ),
        "shell" => object(
            json!({
                "session": session,
                "command": {"type": "string", "description": "A line, or a script."},
                "timeout": {"description": "Seconds that the command may take.", "type": "number",
                    "minimum": limits::TIMEOUT_MIN.as_secs_f64(), "maximum": limits::TIMEOUT_MAX.as_secs()},
                "stdin": {"type": "string", "description": "Its standard input."},
            }),
            &["command"],
        ),
        "files" => object(
            json!({
                "session": session,
                "action": {"type": "string", "enum": ["list", "read", "write", "remove"]},
                "path": {"type": "string", "description": "Relative to the workspace."},
                "text": {"type": "string", "description": "What to write."},
            }),
            &["action"],
        ),
        _ => object(json!({"session": session}), &[]),
    }
}

/// The schema of a tool's structured answer.
pub fn mcp_output_schema(tool: &str) -> Value {
    let session = json!({"type": "string", "description": "Session of the call."});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    match tool {
        "eval" => {
            let error = object(
                json!({
                    "kind": {"type": "string", "description": "raised, timeout, interrupted, fuel, memory, output, stdin or trap"},
                    "type": {"type": "string"},
                    "message": {"type": "string"},
                    "line": {"type": ["integer", "null"]},
                }),
                &["kind", "type", "message"],
            );
            let cell = object(
                json!({
                    "language": {"type": "string"},
                    "status": {"type": "string", "description": "complete, error, or pending for one that did not run"},
                    "durationMs": {"type": ["integer", "null"]},
                    "error": error,
                }),
                &["language", "status"],
            );
            object(
                json!({
                    "session": session,
                    "isNew": {"type": "boolean", "description": "Whether the session was opened for this call."},
                    "isError": {"type": "boolean"},
                    "output": {"type": "string", "description": "The text of the answer."},
                    "cells": {"type": "array", "items": cell},
                    "values": {"type": "array", "items": {}, "description": "Displayed values that are JSON."},
                    "valuesLeftOut": {"type": "integer", "description": "Such values for which there was no room."},
                    "images": {"type": "integer", "description": "Displayed images."},
                }),
                &["session", "isNew", "isError", "output", "cells", "values", "images"],
            )
        }
        "shell" => object(
            json!({
                "session": session,
                "isNew": {"type": "boolean", "description": "Whether the session was opened for this call."},
                "exitCode": {"type": ["integer", "null"], "description": "Null for a command that was ended."},
                "output": {"type": "string", "description": "The text of the answer."},
                "isCut": {"type": "boolean", "description": "Whether the middle of the output is left out."},
            }),
            &["session", "isNew", "exitCode", "output", "isCut"],
        ),
        "snapshot" => object(json!({"session": session, "snapshot": {"type": "string"}}), &["session", "snapshot"]),
        "files" => {
            let entry = object(json!({"name": {"type": "string"}, "kind": {"type": "string"}}), &["name", "kind"]);
            object(
                json!({
                    "session": session,
                    "entries": {"type": "array", "items": entry, "description": "What is in a folder."},
                    "text": {"type": "string", "description": "What is in a file."},
                    "sizeBytes": {"type": "integer", "description": "Size of the file."},
                }),
                &["session"],
            )
        }
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
        check("eval", json!({"session": "", "language": "python", "code": "1"}), &[]);
        check("reset", json!({}), &[]);
        check("fork", json!({}), &[]);
        check("files", json!({"action": "list"}), &[]);
        check("fork", json!({"session": "s", "snapshot": "snap-1"}), &["$: expected either `session` or `snapshot`"]);
        check(
            "files",
            json!({"session": "s", "action": "write"}),
            &["$.text: expected the text to write, found nothing"],
        );
        assert!(mcp_call("other", b"{}").is_none());
    }
}
