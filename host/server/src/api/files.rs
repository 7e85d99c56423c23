//! The files of a session, in its workspace: what its cells may not reach cannot be reached here either, because the same
//! tree answers.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use cellar_engine::{Session, config::WORKSPACE};
use cellar_files::{Descriptor, FileError, FileKind, Files, OpenHow, ROOT, Stat};
use cellar_wire::FileJson;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{
    access::characters,
    api::tar,
    http::body::{PIECE_BYTES, next_piece},
    problem::{Answer, Problem},
    router::{self, Call},
    tenant::on_a_thread,
};

/// `GET /v1/sessions/{session}/files/{path}`: the bytes of a file, or what is in a folder.
pub(crate) async fn read(call: Call, session: &str, names: &[&str]) -> Answer {
    let path = guest_path(names)?;
    let session = call.tenant.session(session).await?.session;
    let is_tar = tar::is_named(&call.headers, header::ACCEPT);
    let opened = on_a_thread(move || {
        let mut files = session.files();
        let stat = files.stat_at(ROOT, &path, true)?;
        let is_folder = stat.kind == FileKind::Directory;
        if is_folder && is_tar {
            return Ok(Opened::Tar(Box::new(files), path));
        }
        let how = OpenHow { read: true, directory: is_folder, follow_symlinks: true, ..OpenHow::default() };
        let file = files.open(ROOT, &path, how)?;
        if is_folder {
            return Ok(Opened::Folder(entries(&mut files, file)?));
        }
        let stat = files.stat(file)?;
        Ok::<_, FileError>(Opened::File(Box::new(files), file, stat))
    });
    match opened.await?? {
        Opened::Folder(entries) => router::json(StatusCode::OK, &json!({ "entries": entries })),
        Opened::Tar(files, path) => Ok(tar::pack(files, path)),
        Opened::File(files, file, stat) => {
            let head =
                Head { size: stat.size, etag: Some(etag(&stat)), mime_type: "application/octet-stream".to_owned() };
            serve(Source::Guest(files, file), head, &call.headers)
        }
    }
}

enum Opened {
    Folder(Vec<FileJson>),
    Tar(Box<Files>, String),
    File(Box<Files>, Descriptor, Stat),
}

pub(crate) fn entries(files: &mut Files, folder: Descriptor) -> Result<Vec<FileJson>, FileError> {
    let mut entries = Vec::new();
    loop {
        let piece = files.read_directory(folder, entries.len() as u64)?;
        if piece.is_empty() {
            return Ok(entries);
        }
        for entry in piece {
            let stat = files.stat_at(folder, &entry.name, false).ok();
            let kind = match stat.as_ref().map_or(entry.kind, |stat| stat.kind) {
                FileKind::RegularFile => "file",
                FileKind::Directory => "folder",
                FileKind::SymbolicLink => "link",
                _ => "other",
            };
            let modified_at = stat.as_ref().map(|stat| stat.modified / 1_000_000_000);
            let size = stat.filter(|_| kind == "file").map(|stat| stat.size);
            entries.push(FileJson { name: entry.name, kind, size, modified_at });
        }
    }
}

/// `PUT /v1/sessions/{session}/files/{path}`: a file is whole or as it was. A path that ends with `/` is a folder's.
pub(crate) async fn write(mut call: Call, session: &str, names: &[&str]) -> Answer {
    let is_folder = names.last().is_none_or(|last| last.is_empty());
    let target = guest_path(names)?;
    let session = call.tenant.session(session).await?.session;
    let condition = Condition::of(&call.headers)?;
    let body = call.stream();
    let (parent, _) = target.rsplit_once('/').unwrap_or_default();
    let (parent, part) = (parent.to_owned(), format!("{parent}/.upload-{}", characters(16)));
    if is_folder && tar::is_named(&call.headers, header::CONTENT_TYPE) {
        return tar::unpack(session, target, body).await;
    }
    if is_folder {
        on_a_thread(move || make_folders(&mut session.files(), &target)).await??;
        return Ok(StatusCode::CREATED.into_response());
    }
    let (opened, path) = (session.clone(), part.clone());
    let (files, file) = on_a_thread(move || {
        let mut files = opened.files();
        make_folders(&mut files, &parent)?;
        let how = OpenHow { create: true, exclusive: true, write: true, ..OpenHow::default() };
        let file = files.open(ROOT, &path, how)?;
        Ok::<_, FileError>((files, file))
    })
    .await??;
    // Whatever comes between leaves no part behind.
    let mut unfinished = Unfinished { session, part: Some(part.clone()) };
    let mut files = receive(files, file, body).await?;
    let (etag, is_new) = on_a_thread(move || {
        files.close(file)?;
        let there = match files.stat_at(ROOT, &target, true) {
            Ok(stat) => Some(stat),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        if there.as_ref().is_some_and(|stat| stat.kind == FileKind::Directory) {
            return Err(FileError::IsDirectory.into());
        }
        condition.check(there.as_ref())?;
        files.rename(ROOT, &part, ROOT, &target)?;
        Ok::<_, Problem>((etag(&files.stat_at(ROOT, &target, true)?), there.is_none()))
    })
    .await??;
    unfinished.part = None;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok((status, [(header::ETAG, etag)]).into_response())
}

/// Puts these bytes in the place of a file, whole. Blocks.
pub(crate) fn replace(files: &mut Files, path: &str, bytes: &[u8]) -> Result<(), FileError> {
    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
    make_folders(files, parent)?;
    let part = format!("{parent}/.upload-{}", characters(16));
    let how = OpenHow { create: true, exclusive: true, write: true, ..OpenHow::default() };
    let file = files.open(ROOT, &part, how)?;
    let written = write_all(files, file, 0, bytes);
    let replaced = files.close(file).and(written).and_then(|_| files.rename(ROOT, &part, ROOT, path));
    if replaced.is_err() {
        let _ = files.remove_file(ROOT, &part);
    }
    replaced
}

/// Writes all of these bytes from an offset on, and returns that behind them.
pub(crate) fn write_all(
    files: &mut Files,
    file: Descriptor,
    mut offset: u64,
    mut bytes: &[u8],
) -> Result<u64, FileError> {
    while !bytes.is_empty() {
        let written = files.write(file, offset, &bytes[..bytes.len().min(PIECE_BYTES)])?;
        bytes = &bytes[usize::try_from(written).unwrap_or(bytes.len()).min(bytes.len())..];
        offset = offset.saturating_add(written.into());
    }
    Ok(offset)
}

/// Makes a folder and those above it that are not there.
pub(crate) fn make_folders(files: &mut Files, path: &str) -> Result<(), FileError> {
    let mut places = path.match_indices('/').map(|(place, _)| place).skip(1).chain([path.len()]);
    places.try_for_each(|end| match files.create_directory(ROOT, &path[..end]) {
        Err(FileError::Exists | FileError::Busy) => Ok(()),
        // The folder of a mount is there, whether or not one may write beside it.
        Err(FileError::ReadOnly) if files.stat_at(ROOT, &path[..end], true).is_ok() => Ok(()),
        made => made,
    })
}

/// Writes what comes. The tree goes from thread to thread, so that a slow sender holds none.
pub(crate) async fn receive(mut files: Files, file: Descriptor, mut body: Body) -> Result<Files, Problem> {
    let mut offset = 0;
    while let Some(piece) = next_piece(&mut body, "file").await? {
        (files, offset) = on_a_thread(move || {
            let offset = write_all(&mut files, file, offset, &piece)?;
            Ok::<_, FileError>((files, offset))
        })
        .await??;
    }
    Ok(files)
}

/// An upload that is not finished. Dropped, it takes its part away.
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

/// `DELETE /v1/sessions/{session}/files/{path}`: a file, or a folder that is empty.
pub(crate) async fn remove(call: Call, session: &str, names: &[&str]) -> Answer {
    let path = guest_path(names)?;
    let condition = Condition::of(&call.headers)?;
    let session = call.tenant.session(session).await?.session;
    on_a_thread(move || {
        let mut files = session.files();
        let stat = files.stat_at(ROOT, &path, false)?;
        condition.check(Some(&stat))?;
        match stat.kind {
            FileKind::Directory => files.remove_directory(ROOT, &path)?,
            _ => files.remove_file(ROOT, &path)?,
        }
        Ok::<_, Problem>(())
    })
    .await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The path of a file for cells, with an empty last name for that of a folder. Names that lead elsewhere than they say are
/// refused.
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

fn etag(stat: &Stat) -> String {
    format!("\"{:x}-{:x}-{:x}\"", stat.inode, stat.size, stat.modified)
}

/// What must hold of what is there.
enum Condition {
    None,
    /// It is there as one of these; `*` is any.
    Is(String),
    /// Nothing is there.
    Absent,
}

impl Condition {
    fn of(headers: &HeaderMap) -> Result<Condition, Problem> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
        match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
            (None, None) => Ok(Condition::None),
            (Some(tags), None) => Ok(Condition::Is(tags)),
            (None, Some(tags)) if tags.trim() == "*" => Ok(Condition::Absent),
            _ => Err(Problem::bad("a change takes If-Match, or If-None-Match: *, and not both")),
        }
    }

    fn check(&self, there: Option<&Stat>) -> Result<(), Problem> {
        let holds = match (self, there) {
            (Condition::None, _) => true,
            (Condition::Is(_), None) => false,
            (Condition::Is(tags), Some(stat)) => has_tag(tags, &etag(stat)),
            (Condition::Absent, there) => there.is_none(),
        };
        let detail = "the file is not as the request says";
        if holds { Ok(()) } else { Err(Problem::new(StatusCode::PRECONDITION_FAILED, "precondition", detail)) }
    }
}

fn has_tag(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|each| each == "*" || each == tag)
}

/// Where bytes come from.
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

/// What is said of bytes before they come.
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

/// From where to before where; `Some(None)` when nothing is there, `None` when it is no range that is understood, and
/// then all is given.
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
