//! The files of a session, in its workspace: what its cells may not reach cannot be reached here either, because the same
//! tree answers.

use axum_core::response::IntoResponse;
use cellar_files::{Descriptor, FileError, FileKind, Files, OpenHow, ROOT, Stat};
use cellar_wire::FileJson;
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde_json::json;

use super::tar;
use crate::{
    access::characters,
    http::{
        Call, answers,
        files::{Head, Source, Unfinished, entries, guest_path, has_tag, receive, serve},
    },
    problem::{Answer, Problem},
    tenant::on_a_thread,
};

/// `GET /v1/sessions/{session}/files/{path}`: the bytes of a file, or what is in a folder.
pub(crate) async fn read(call: Call, session: &str, names: &[&str]) -> Answer {
    let path = guest_path(names)?;
    let session = call.tenant.session(session).await?.session;
    let is_tar = tar::is_named(&call.parts.headers, header::ACCEPT);
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
        Opened::Folder(entries) => answers::json(StatusCode::OK, &json!({ "entries": entries })),
        Opened::Tar(files, path) => Ok(tar::pack(files, path)),
        Opened::File(files, file, stat) => {
            let head =
                Head { size: stat.size, etag: Some(etag(&stat)), mime_type: "application/octet-stream".to_owned() };
            serve(Source::Guest(files, file), head, &call.parts.headers)
        }
    }
}

enum Opened {
    Folder(Vec<FileJson>),
    Tar(Box<Files>, String),
    File(Box<Files>, Descriptor, Stat),
}

/// `PUT /v1/sessions/{session}/files/{path}`: a file is whole or as it was. A path that ends with `/` is a folder's.
pub(crate) async fn write(mut call: Call, session: &str, names: &[&str]) -> Answer {
    let is_folder = names.last().is_none_or(|last| last.is_empty());
    let target = guest_path(names)?;
    let session = call.tenant.session(session).await?.session;
    let condition = Condition::of(&call.parts.headers)?;
    let body = call.stream();
    let (parent, _) = target.rsplit_once('/').unwrap_or_default();
    let (parent, part) = (parent.to_owned(), format!("{parent}/.upload-{}", characters(16)));
    if is_folder && tar::is_named(&call.parts.headers, header::CONTENT_TYPE) {
        return tar::unpack(session, target, body).await;
    }
    if is_folder {
        on_a_thread(move || session.files().make_folders(&target)).await??;
        return Ok(StatusCode::CREATED.into_response());
    }
    let (opened, path) = (session.clone(), part.clone());
    let (files, file) = on_a_thread(move || {
        let mut files = opened.files();
        files.make_folders(&parent)?;
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

/// `DELETE /v1/sessions/{session}/files/{path}`: a file, or a folder that is empty.
pub(crate) async fn remove(call: Call, session: &str, names: &[&str]) -> Answer {
    let path = guest_path(names)?;
    let condition = Condition::of(&call.parts.headers)?;
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

fn etag(stat: &Stat) -> String {
    format!("\"{:x}-{:x}-{:x}\"", stat.inode, stat.size, stat.modified)
}

/// Precondition of a change.
enum Condition {
    None,
    /// Passes if the file exists with one of these entity tags; `*` is any.
    Is(String),
    /// Passes if the file does not exist.
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
