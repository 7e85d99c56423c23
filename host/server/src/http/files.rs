//! Files of sessions as every interface reads and writes them: paths, uploads, folders, and answers with ranges of bytes.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use cellar_engine::{Session, config::WORKSPACE};
use cellar_files::{Descriptor, FileError, Files, ListedFile, OpenHow, ROOT};
use cellar_wire::FileJson;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::body::{PIECE_BYTES, next_piece};
use crate::{
    access::characters,
    problem::{Answer, Problem},
    tenant::on_a_thread,
};

/// Entries of a folder. Blocks.
pub(crate) fn entries(files: &mut Files, folder: Descriptor) -> Result<Vec<FileJson>, FileError> {
    let entries = files.entries(folder)?.into_iter();
    Ok(entries
        .map(|ListedFile { name, kind, size, modified }| FileJson { name, kind, size, modified_at: modified })
        .collect())
}

/// Puts these bytes in the place of a file, whole. Blocks.
pub(crate) fn replace(files: &mut Files, path: &str, bytes: &[u8]) -> Result<(), FileError> {
    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
    files.make_folders(parent)?;
    let part = format!("{parent}/.upload-{}", characters(16));
    let how = OpenHow { create: true, exclusive: true, write: true, ..OpenHow::default() };
    let file = files.open(ROOT, &part, how)?;
    let written = files.write_all(file, 0, bytes);
    let replaced = files.close(file).and(written).and_then(|_| files.rename(ROOT, &part, ROOT, path));
    if replaced.is_err() {
        let _ = files.remove_file(ROOT, &part);
    }
    replaced
}

/// Writes a body to a file. The tree moves from thread to thread, so that a slow sender occupies none.
pub(crate) async fn receive(mut files: Files, file: Descriptor, mut body: Body) -> Result<Files, Problem> {
    let mut offset = 0;
    while let Some(piece) = next_piece(&mut body, "file").await? {
        (files, offset) = on_a_thread(move || {
            let offset = files.write_all(file, offset, &piece)?;
            Ok::<_, FileError>((files, offset))
        })
        .await??;
    }
    Ok(files)
}

/// Unfinished upload. Dropping it removes its partial file.
pub(crate) struct Unfinished {
    pub(crate) session: Session,
    pub(crate) part: Option<String>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let session = self.session.clone();
            tokio::task::spawn_blocking(move || session.files().remove_file(ROOT, &part));
        }
    }
}

/// Returns the guest path of a file; an empty last segment is ignored, as that of a folder. Refuses `.`, `..`, and
/// other segments that lead elsewhere.
pub(crate) fn guest_path(names: &[&str]) -> Result<String, Problem> {
    let names = match names {
        [names @ .., ""] => names,
        names => names,
    };
    let is_odd = |name: &&str| matches!(*name, "" | "." | "..") || name.contains(['/', '\0']);
    if names.iter().any(is_odd) {
        return Err(Problem::bad("the path of a file is relative to the workspace, without `.`, `..` and empty names"));
    }
    Ok(names.iter().fold(WORKSPACE.to_owned(), |path, name| path + "/" + name))
}

/// Returns true if a list of entity tags contains this one, or `*`.
pub(crate) fn has_tag(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|each| each == "*" || each == tag)
}

/// Source of bytes.
pub(crate) enum Source {
    Guest(Box<Files>, Descriptor),
    Host(Arc<File>),
}

impl Source {
    fn read(&mut self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let length = length.min(PIECE_BYTES);
        match self {
            Source::Guest(files, file) => {
                let piece = files.read(*file, offset, u32::try_from(length).unwrap_or(u32::MAX));
                piece.map(Bytes::from).map_err(std::io::Error::other)
            }
            Source::Host(file) => {
                let mut piece = vec![0; length];
                let read = file.read_at(&mut piece, offset)?;
                piece.truncate(read);
                Ok(Bytes::from(piece))
            }
        }
    }
}

/// Head of an answer that has bytes.
pub(crate) struct Head {
    pub(crate) size: u64,
    pub(crate) etag: Option<String>,
    pub(crate) mime_type: String,
}

/// Answers with bytes, or the range of them that is asked for.
pub(crate) fn serve(mut source: Source, head: Head, headers: &HeaderMap) -> Answer {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let known = text(header::IF_NONE_MATCH).zip(head.etag.as_deref());
    if known.is_some_and(|(tags, tag)| has_tag(tags, tag)) {
        return Ok(StatusCode::NOT_MODIFIED.into_response());
    }
    let range = match text(header::RANGE).and_then(|range| parse_range(range, head.size)) {
        None => None,
        Some(Some(range)) => Some(range),
        Some(None) => {
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", "nothing is in this range");
            let mut response = problem.into_response();
            set(&mut response, header::CONTENT_RANGE, &format!("bytes */{}", head.size));
            return Ok(response);
        }
    };
    let (from, to) = range.unwrap_or((0, head.size));
    let body = async_stream::stream! {
        let mut offset = from;
        while offset < to {
            let length = usize::try_from(to.saturating_sub(offset)).unwrap_or(usize::MAX);
            let read = tokio::task::spawn_blocking(move || {
                let piece = source.read(offset, length);
                (source, piece)
            });
            match read.await {
                Ok((given_back, Ok(piece))) => {
                    source = given_back;
                    if piece.is_empty() {
                        // It was cut meanwhile: the connection breaks off, because its length was told.
                        break;
                    }
                    offset = offset.saturating_add(piece.len() as u64);
                    yield Ok::<Bytes, std::io::Error>(piece);
                }
                Ok((_, Err(error))) => {
                    yield Err(error);
                    break;
                }
                Err(error) => {
                    yield Err(std::io::Error::other(error));
                    break;
                }
            }
        }
    };
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = (status, Body::from_stream(body)).into_response();
    set(&mut response, header::CONTENT_LENGTH, &to.saturating_sub(from).to_string());
    set(&mut response, header::CONTENT_TYPE, &head.mime_type);
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if let Some(etag) = &head.etag {
        set(&mut response, header::ETAG, etag);
    }
    if range.is_some() {
        set(&mut response, header::CONTENT_RANGE, &format!("bytes {from}-{}/{}", to.saturating_sub(1), head.size));
    }
    Ok(response)
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Parses a range into its first byte and the one behind its last. `Some(None)` if it is empty; `None` if it is not
/// understood, and then the whole file is sent.
fn parse_range(text: &str, size: u64) -> Option<Option<(u64, u64)>> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (from, to) = match (from.trim(), to.trim()) {
        ("", last) => (size.saturating_sub(number(last)?), size),
        (from, "") => (number(from)?, size),
        (from, to) => (number(from)?, number(to)?.saturating_add(1).min(size)),
    };
    Some((from < to).then_some((from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(parse_range("bytes=0-0", 10), Some(Some((0, 1))));
        assert_eq!(parse_range("bytes=2-", 10), Some(Some((2, 10))));
        assert_eq!(parse_range("bytes=-3", 10), Some(Some((7, 10))));
        assert_eq!(parse_range("bytes=-30", 10), Some(Some((0, 10))));
        assert_eq!(parse_range("bytes=5-99999999999999999999", 10), None);
        assert_eq!(parse_range("bytes=5-18446744073709551615", 10), Some(Some((5, 10))));
        assert_eq!(parse_range("bytes=10-", 10), Some(None));
        assert_eq!(parse_range("bytes=0-1,3-4", 10), None);
    }

    #[test]
    fn paths_lead_where_they_say() {
        let path = |text: &str| guest_path(&text.split('|').collect::<Vec<_>>());
        assert_eq!(path("a|b c.txt").expect("a path"), "/workspace/a/b c.txt");
        assert_eq!(guest_path(&[]).expect("a path"), "/workspace");
        assert_eq!(path("").expect("a path"), "/workspace");
        assert_eq!(path("a|").expect("a path"), "/workspace/a");
        for text in ["..", "a|..|b", "|etc|passwd", "a||b", ".|a", "a|.", "a\0b", "||", "a/b", "../x"] {
            assert!(path(text).is_err(), "{text:?}");
        }
    }
}
