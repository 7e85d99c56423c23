//! `tool.read`, which every session has: artifacts, outputs of agents, and files of the granted folders, as text.

use std::{
    fs::File,
    io::{self, Read},
};

use cellar_core::text::describe;
use cellar_files::{Descriptor, FileError, FileKind, Files, OpenHow, ROOT};
use cellar_results::artifacts::{AGENT_SCHEME, ARTIFACT_SCHEME, Artifact, ArtifactError, SessionArtifacts};
use cellar_tables::{PARQUET_TYPE, Page, PageRequest, TableError};
use serde::Deserialize;

use crate::{
    contract::{
        bridge::{AgentCall, CallError, CallErrorKind, CallFuture, Response, ToolSpec},
        config::WORKSPACE,
    },
    kernel::calls::{Begun, Kept, KeptOutput, KeptSlot},
    session::Session,
};

/// Name of the tool. A tool of the same name that the embedder grants replaces it.
pub(crate) const READ_TOOL: &str = "read";
/// Bytes that one call returns.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes in which a text has no NUL.
const SNIFFED_BYTES: usize = 8 << 10;

/// The arguments of `tool.read(path, offset, limit)`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    /// Number of the first line, from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// Number of lines to return.
    #[serde(default)]
    limit: Option<u64>,
}

/// Specification of the tool, as cells see it.
pub(crate) fn read_tool() -> ToolSpec {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "artifact://ID, agent://NAME, a file, or a folder to list",
            },
            "offset": {"type": "integer", "minimum": 0, "description": "number of the first line, or row of a table, from 1"},
            "limit": {"type": "integer", "minimum": 0, "description": "how many lines"},
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    ToolSpec {
        name: READ_TOOL.to_owned(),
        description: "The text of an artifact, of an agent's output, or of a file; a table's rows; what is in a folder"
            .to_owned(),
        schema: Some(schema.to_string()),
    }
}

impl Session {
    /// Keeps what an agent says, once it has said it, and leaves word of that. An output that cannot be kept is no
    /// reason to fail: its caller has it.
    pub(crate) fn keeping_output(self, asked: AgentCall, future: CallFuture) -> Begun {
        let kept = KeptSlot::default();
        let slot = kept.clone();
        let future = Box::pin(async move {
            let response = future.await?;
            let AgentCall { agent_type, label, .. } = asked;
            if let Response::Text(text) | Response::Json(text) = &response {
                // Without a label it is found by what kind of agent said it.
                let (text, label) = (text.clone(), label.unwrap_or_else(|| agent_type.clone()));
                let bytes = text.len() as u64;
                let put = move || self.artifacts()?.put_agent(&label, &text);
                match tokio::task::spawn_blocking(put).await {
                    Ok(Ok(name)) => {
                        let uri = format!("{AGENT_SCHEME}{name}");
                        let _ = slot.set(Kept::Output(KeptOutput { agent_type, uri, bytes }));
                    }
                    Ok(Err(error)) => tracing::warn!(error = describe(&error), "an agent's output was not kept"),
                    Err(error) => tracing::warn!(%error, "an agent's output was not kept"),
                }
            }
            Ok(response)
        });
        Begun { kept: Some(kept), ..Begun::from(future as CallFuture) }
    }

    /// Answers a call of the tool.
    pub(crate) fn call_read(self, arguments: String) -> CallFuture {
        Box::pin(async move {
            let arguments: Arguments = serde_json::from_str(&arguments).map_err(|error| {
                let message = format!("tool `{READ_TOOL}` takes path, offset and limit: {error}");
                CallError::new(CallErrorKind::Invalid, message)
            })?;
            let read = tokio::task::spawn_blocking(move || {
                let first = arguments.offset.unwrap_or(1).saturating_sub(1);
                let text = self.read(&arguments.path, first, arguments.limit.unwrap_or(u64::MAX))?;
                Ok(Response::Json(serde_json::Value::String(text).to_string()))
            });
            read.await.unwrap_or_else(|error| Err(CallError::new(CallErrorKind::Failed, error.to_string())))
        })
    }

    /// The text behind a path or an URI: `lines` lines after the first `skipped`.
    fn read(&self, path: &str, skipped: u64, lines: u64) -> Result<String, CallError> {
        let failed = |why: &dyn std::fmt::Display| {
            CallError::new(CallErrorKind::Failed, format!("`{path}` cannot be read: {why}"))
        };
        let text = if path.starts_with(ARTIFACT_SCHEME) || path.starts_with(AGENT_SCHEME) {
            let artifact = self.find_artifact(path).and_then(|(own, found)| Ok((own.read(&found.id)?, found)));
            let (mut file, artifact) = artifact.map_err(|error| match error {
                // What the host says may name a folder of the host.
                ArtifactError::Io { source, .. } => failed(&source.kind()),
                other => failed(&other),
            })?;
            match artifact.mime_type.as_str() {
                PARQUET_TYPE => rows_of(file, skipped, lines).map_err(io::Error::other),
                _ => lines_of(&mut file, skipped, lines),
            }
        } else if let Some((scheme, _)) = path.split_once("://") {
            let message =
                format!("`{scheme}://` cannot be read; known are {ARTIFACT_SCHEME}, {AGENT_SCHEME} and paths");
            return Err(CallError::new(CallErrorKind::Invalid, message));
        } else {
            self.read_file(path, skipped, lines)
        };
        let text = text.map_err(|error| failed(&error))?.ok_or_else(|| {
            let message =
                format!("`{path}` has more than {TEXT_BYTES_MAX} bytes; read it in parts, with offset and limit");
            CallError::new(CallErrorKind::Limit, message)
        })?;
        if text[..text.len().min(SNIFFED_BYTES)].contains(&0) {
            return Err(failed(&"it is not a text"));
        }
        Ok(String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn find_artifact(&self, uri: &str) -> Result<(SessionArtifacts, Artifact), ArtifactError> {
        let own = self.artifacts()?;
        let artifact = if uri.starts_with(AGENT_SCHEME) { own.agent(uri) } else { own.get(uri) }?;
        Ok((own, artifact))
    }

    /// A file of the granted folders, or the names in a folder.
    fn read_file(&self, path: &str, skipped: u64, lines: u64) -> io::Result<Option<Vec<u8>>> {
        let path = path.strip_prefix("~/").unwrap_or(path);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{WORKSPACE}/{path}") };
        let mut files = Files::new(self.inner.folders.mounts.clone(), self.inner.quota.clone());
        let how = OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() };
        let file = files.open(ROOT, &path, how).map_err(io::Error::other)?;
        if files.stat(file).map_err(io::Error::other)?.kind == FileKind::Directory {
            let listing = names_in(&mut files, file).map_err(io::Error::other)?;
            return lines_of(&mut listing.as_bytes(), skipped, lines);
        }
        lines_of(&mut GrantedFile { files, file, offset: 0 }, skipped, lines)
    }
}

/// The names in a folder, one a line; folders end with a slash.
fn names_in(files: &mut Files, folder: Descriptor) -> Result<String, FileError> {
    let mut names = String::new();
    let mut skip = 0;
    loop {
        let entries = files.read_directory(folder, skip)?;
        if entries.is_empty() {
            return Ok(names);
        }
        skip = skip.saturating_add(entries.len() as u64);
        for entry in entries {
            names.push_str(&entry.name);
            names.push_str(if entry.kind == FileKind::Directory { "/\n" } else { "\n" });
        }
    }
}

/// A file that was opened through the session's own rules.
struct GrantedFile {
    files: Files,
    file: Descriptor,
    offset: u64,
}

impl Read for GrantedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let bytes = self.files.read(self.file, self.offset, length).map_err(io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }
}

/// Rows of a table as CSV, below the names of its columns; `None` when they are too many bytes.
fn rows_of(file: File, skip: u64, rows: u64) -> Result<Option<Vec<u8>>, TableError> {
    let page = Page::read(file, PageRequest { skip, rows, bytes: TEXT_BYTES_MAX, value_chars: None })?;
    let is_whole = !page.is_squeezed && page.rows == rows.min(page.total.saturating_sub(skip));
    Ok(is_whole.then(|| (page.header + &page.text).into_bytes()))
}

/// Some lines, in memory that does not grow with what comes before them; `None` when they are too many bytes.
fn lines_of(from: &mut impl Read, skipped: u64, lines: u64) -> io::Result<Option<Vec<u8>>> {
    let mut found = Vec::new();
    let mut line = 0;
    let end = skipped.saturating_add(lines);
    let mut chunk = vec![0; CHUNK_BYTES];
    while line < end {
        let length = from.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        for piece in chunk[..length].split_inclusive(|byte| *byte == b'\n') {
            if (skipped..end).contains(&line) {
                found.extend_from_slice(piece);
            }
            line = line.saturating_add(u64::from(piece.ends_with(b"\n")));
        }
        if found.len() > TEXT_BYTES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_the_first_and_may_be_fewer_than_asked_for() {
        let read = |skipped, lines| {
            let found = lines_of(&mut "one\ntwo\nthree".as_bytes(), skipped, lines).expect("read").expect("short");
            String::from_utf8(found).expect("text")
        };
        assert_eq!(read(0, u64::MAX), "one\ntwo\nthree");
        assert_eq!(
            [read(1, 1), read(1, 9), read(2, 1), read(3, 1), read(0, 0)],
            ["two\n", "two\nthree", "three", "", ""]
        );
    }

    #[test]
    fn too_much_is_refused_and_a_part_of_it_is_not() {
        let line = "x".repeat(999) + "\n";
        let text = line.repeat(10_000);
        assert_eq!(lines_of(&mut text.as_bytes(), 0, u64::MAX).expect("read"), None);
        let part = lines_of(&mut text.as_bytes(), 9_000, 10).expect("read").expect("a part");
        assert_eq!(part.len(), 10_000);
    }
}
