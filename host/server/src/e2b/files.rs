//! Files that clients read and write whole, and the paths by which they name them.

use std::io::Read as _;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use cellar_engine::{
    Session,
    config::{ALIASES, TEMPORARY, WORKSPACE},
};
use cellar_files::{FileError, FileKind, OpenHow, ROOT};
use flate2::read::GzDecoder;
use http::{StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Call, multipart, sandboxes::Sandbox, told};
use crate::{
    access::characters,
    http::{
        Buffered,
        files::{Head, Source, Unfinished, receive, replace, serve},
        no_buffers,
    },
    problem::{Answer, Problem},
    tenant::on_a_thread,
};

/// Clients' path of the folder that cells have as their workspace.
pub(super) const HOME: &str = "/home/user";
/// Bytes that are decompressed at once.
const INFLATED_BYTES: usize = 256 << 10;
/// Bytes of a path.
const PATH_BYTES_MAX: usize = 4_096;

/// Path in the tree of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Path as clients write it.
    pub(super) shown: String,
    /// Path as cells see it.
    pub(super) guest: String,
}

impl Place {
    /// Parses a path, which begins in the workspace unless it is absolute.
    pub(super) fn of(path: &str) -> Result<Place, Problem> {
        if path.len() > PATH_BYTES_MAX || path.contains('\0') {
            return Err(Problem::bad(format!("a path has {PATH_BYTES_MAX} bytes at most, and no NUL")));
        }
        let from_home = path.strip_prefix("~/").or(if path == "~" { Some("") } else { None });
        let (start, rest) = match from_home {
            Some(rest) => (HOME, rest),
            None if path.starts_with('/') => ("", path),
            None => (HOME, path),
        };
        let mut names: Vec<&str> = Vec::new();
        for name in start.split('/').chain(rest.split('/')) {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()),
                name => names.push(name),
            }
        }
        Ok(Place::at(format!("/{}", names.join("/"))))
    }

    /// Returns the place of a normalized path of clients.
    fn at(shown: String) -> Place {
        let in_home = shown.strip_prefix(HOME).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let guest = in_home.map_or_else(|| shown.clone(), |rest| format!("{WORKSPACE}{rest}"));
        Place { shown, guest }
    }

    /// Returns the place of this name in it.
    pub(super) fn under(&self, name: &str) -> Place {
        let join = |folder: &str| format!("{}/{name}", folder.trim_end_matches('/'));
        Place { shown: join(&self.shown), guest: join(&self.guest) }
    }

    /// Returns its last name.
    pub(super) fn name(&self) -> &str {
        self.shown.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/")
    }

    /// Returns the folder that it is in, as cells see it.
    pub(super) fn parent(&self) -> &str {
        self.guest.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// Returns true if it is a folder that every session has, by any of its names, or lies above one.
    pub(super) fn is_root(&self) -> bool {
        let is_at_or_above = |folder: &&str| {
            let rest = folder.strip_prefix(self.guest.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.guest == "/" || [WORKSPACE, TEMPORARY].iter().chain(&ALIASES).any(is_at_or_above)
    }

    /// Returns the problem for a file that cannot be read or changed.
    pub(super) fn fault(&self, error: FileError) -> Problem {
        let (status, code) = match error {
            FileError::NotFound => (StatusCode::NOT_FOUND, "unknown"),
            FileError::Exists => (StatusCode::CONFLICT, "exists"),
            FileError::Access
            | FileError::NotPermitted
            | FileError::ReadOnly
            | FileError::NotCapable
            | FileError::CrossDevice => (StatusCode::FORBIDDEN, "file"),
            FileError::Quota => (StatusCode::INSUFFICIENT_STORAGE, "quota"),
            FileError::Io | FileError::Interrupted => (StatusCode::INTERNAL_SERVER_ERROR, "file"),
            _ => (StatusCode::BAD_REQUEST, "file"),
        };
        Problem::new(status, code, format!("{}: {error}", self.shown))
    }
}

/// Returns the signature of a text that includes a sandbox's token, as clients make it for addresses.
pub(super) fn signature(text: &str) -> String {
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())))
}

fn asked_place(call: &Call) -> Result<Option<Place>, Problem> {
    call.asked("path").filter(|path| !path.is_empty()).map(|path| Place::of(&path)).transpose()
}

/// `GET /files`: the bytes of a file.
pub(super) async fn read(call: Call, sandbox: Sandbox) -> Answer {
    let place = asked_place(&call)?.ok_or_else(|| Problem::bad("`path` is missing behind `?`"))?;
    let session = call.account.tenant.session(&sandbox.id).await?.session;
    let opened = on_a_thread(move || {
        let mut files = session.files();
        let found = files.stat_at(ROOT, &place.guest, true).map_err(|error| place.fault(error))?;
        if found.kind != FileKind::RegularFile {
            let what = if found.kind == FileKind::Directory { "a folder" } else { "no regular file" };
            return Err(Problem::bad(format!("{} is {what}", place.shown)));
        }
        let how = OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() };
        let file = files.open(ROOT, &place.guest, how).map_err(|error| place.fault(error))?;
        let size = files.stat(file).map_err(|error| place.fault(error))?.size;
        Ok((files, file, size))
    });
    let (files, file, size) = opened.await??;
    let head = Head { size, etag: None, mime_type: "application/octet-stream".to_owned() };
    serve(Source::Guest(Box::new(files), file), head, &call.headers)
}

/// `POST /files`: writes one file, or those of a form.
pub(super) async fn write(mut call: Call, sandbox: Sandbox) -> Answer {
    if call.headers.keys().any(|name| name.as_str().starts_with("x-metadata-")) {
        return Err(super::lives::unimplemented("metadata of files"));
    }
    let session = call.account.tenant.session(&sandbox.id).await?.session;
    let place = asked_place(&call)?;
    let text = |name: header::HeaderName| call.headers.get(name).and_then(|value| value.to_str().ok());
    let encoding = text(header::CONTENT_ENCODING).map(str::to_ascii_lowercase);
    let boundary = text(header::CONTENT_TYPE).and_then(multipart::boundary).map(str::to_owned);
    let is_plain = match encoding.as_deref() {
        None | Some("" | "identity") => true,
        Some("gzip") => false,
        Some(_) => {
            let detail = "a file comes as it is, or compressed with gzip";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", detail));
        }
    };
    let Some(boundary) = boundary else {
        let place = place.ok_or_else(|| Problem::bad("`path` is missing behind `?`"))?;
        let info = info(&place);
        if is_plain {
            stream(&mut call, session, place).await?;
        } else {
            let file = inflated(&mut call).await?;
            on_a_thread(move || put(&session, &place, &file)).await??;
        }
        return Ok(told(StatusCode::OK, &json!([info])));
    };
    let body = if is_plain { call.body().await? } else { inflated(&mut call).await? };
    let parts = multipart::parts(&body.bytes, &boundary)?;
    if place.is_some() && parts.len() > 1 {
        return Err(Problem::bad("`path` is that of one file, and there are several: their names are their paths"));
    }
    let mut named = Vec::new();
    for part in parts {
        let place = match (&place, part.name) {
            (Some(place), _) => place.clone(),
            (None, Some(name)) => Place::of(&name)?,
            (None, None) => return Err(Problem::bad("a file of the form has no name")),
        };
        named.push((place, part.data));
    }
    let infos: Vec<Value> = named.iter().map(|(place, _)| info(place)).collect();
    on_a_thread(move || {
        let _body = body;
        named.iter().try_for_each(|(place, bytes)| put(&session, place, bytes))
    })
    .await??;
    Ok(told(StatusCode::OK, &Value::Array(infos)))
}

fn info(place: &Place) -> Value {
    json!({ "name": place.name(), "type": "file", "path": place.shown })
}

/// Decompresses the gzip body of a request. The limit of bytes applies to it without compression as well.
async fn inflated(call: &mut Call) -> Result<Buffered, Problem> {
    let body = call.body().await?;
    let most = call.state.body_bytes_max;
    on_a_thread(move || {
        let mut inflated = Vec::new();
        let mut decoder = GzDecoder::new(&body.bytes[..]).take((most as u64).saturating_add(1));
        loop {
            // THREAT: T13
            if !body.lease.grow(INFLATED_BYTES) {
                return Err(no_buffers());
            }
            let mut piece = decoder.by_ref().take(INFLATED_BYTES as u64);
            let read = piece.read_to_end(&mut inflated);
            let read = read.map_err(|_| Problem::bad("the body of this request is not what gzip makes"))?;
            if inflated.len() > most {
                let detail = format!("the body of this request may have {most} bytes, without its compression as well");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", detail));
            }
            if read < INFLATED_BYTES {
                return Ok(Buffered { bytes: inflated.into(), lease: body.lease });
            }
        }
    })
    .await?
}

/// Replaces a file with these bytes. Blocks.
fn put(session: &Session, place: &Place, bytes: &[u8]) -> Result<(), Problem> {
    let mut files = session.files();
    check_target(&mut files, place)?;
    replace(&mut files, &place.guest, bytes).map_err(|error| place.fault(error))
}

/// Checks that the target of a write is no folder.
fn check_target(files: &mut cellar_files::Files, place: &Place) -> Result<(), Problem> {
    match files.stat_at(ROOT, &place.guest, true) {
        Ok(found) if found.kind == FileKind::Directory => Err(place.fault(FileError::IsDirectory)),
        Ok(_) | Err(FileError::NotFound) => Ok(()),
        Err(error) => Err(place.fault(error)),
    }
}

/// Replaces a file with the body of a request, piece by piece. The new file is not visible before it is whole.
async fn stream(call: &mut Call, session: Session, place: Place) -> Result<(), Problem> {
    let body = std::mem::take(&mut call.body);
    let part = format!("{}/.upload-{}", place.parent(), characters(16));
    let (opened, path, target) = (session.clone(), part.clone(), place.clone());
    let (files, file) = on_a_thread(move || {
        let mut files = opened.files();
        check_target(&mut files, &target)?;
        files.make_folders(target.parent()).map_err(|error| target.fault(error))?;
        let how = OpenHow { create: true, exclusive: true, write: true, ..OpenHow::default() };
        let file = files.open(ROOT, &path, how).map_err(|error| target.fault(error))?;
        Ok::<_, Problem>((files, file))
    })
    .await??;
    let mut unfinished = Unfinished { session, part: Some(part.clone()) };
    let mut files = receive(files, file, body).await?;
    on_a_thread(move || {
        let renamed = files.close(file).and_then(|()| files.rename(ROOT, &part, ROOT, &place.guest));
        renamed.map_err(|error| place.fault(error))
    })
    .await??;
    unfinished.part = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_home_and_stay_in_the_tree() {
        let guest = |path: &str| Place::of(path).expect("a path").guest;
        assert_eq!(guest("a/b.txt"), "/workspace/a/b.txt");
        assert_eq!(guest("/home/user/a"), "/workspace/a");
        assert_eq!(guest("~/a//./c/../b"), "/workspace/a/b");
        assert_eq!(
            (guest(""), guest("~"), guest("/home/user/")),
            ("/workspace".into(), "/workspace".into(), "/workspace".into())
        );
        assert_eq!(guest("/home/username/a"), "/home/username/a");
        assert_eq!(guest("../../../../etc/passwd"), "/etc/passwd");
        assert_eq!(guest("/.."), "/");
        assert!(Place::of("a\0").is_err() && Place::of(&"a".repeat(5_000)).is_err());
        let place = Place::of("d").expect("a path").under("e");
        assert_eq!((place.shown.as_str(), place.name(), place.parent()), ("/home/user/d/e", "e", "/workspace/d"));
        assert_eq!(Place::of("/").expect("a path").under("data").guest, "/data");
    }

    #[test]
    fn signatures_are_as_clients_make_them() {
        // What the client's own function makes of it.
        assert_eq!(signature("/a.txt:read::token"), "v1_Hyqywm+sIOm8xmClystWihiNB2aAzZQwN641sxS0txo");
    }
}
