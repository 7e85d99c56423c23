//! Folders as tar, both ways. An uploaded tar is untrusted: only files and folders are accepted, with names that lead
//! below the folder, and every length is bounded before anything is kept.

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::{Buf, Bytes, BytesMut};
use cellar_engine::Session;
use cellar_files::{Descriptor, FileError, FileKind, Files, OpenHow, ROOT, Stat};
use http::{HeaderMap, StatusCode, header};

use crate::{
    access::characters,
    http::{
        body::{PIECE_BYTES, next_piece},
        files::Unfinished,
    },
    problem::{Answer, Problem},
    tenant::on_a_thread,
};

/// The MIME type.
pub(crate) const MIME: &str = "application/x-tar";
/// Bytes of a block: everything in a tar begins with one.
const BLOCK: usize = 512;
/// Bits of a size that count its bytes in the last block.
const WITHIN_BLOCK: u64 = BLOCK as u64 - 1;
/// Files and folders that one tar may have.
const ENTRIES_MAX: usize = 100_000;
/// Bytes of the extension of one entry, beyond its block.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;
/// Bytes behind the end.
const TRAILING_BYTES_MAX: usize = 1 << 20;
/// Folders within folders.
const DEPTH_MAX: usize = 256;

/// Returns true if a header names the MIME type of tar.
pub(crate) fn is_named(headers: &HeaderMap, name: header::HeaderName) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains(MIME))
}

/// Responds with a folder of a session as tar. A link to a file is packed as that file; anything else that is neither
/// file nor folder is left out.
pub(crate) fn pack(files: Box<Files>, folder: String) -> Response {
    let mut walk = Walk { files, waiting: vec![(folder, String::new())], current: None, is_over: false };
    let body = async_stream::stream! {
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let piece = walk.piece();
                (walk, piece)
            });
            match read.await {
                Ok((given_back, Ok(Some(piece)))) => {
                    walk = given_back;
                    yield Ok::<Bytes, std::io::Error>(piece);
                }
                Ok((_, Ok(None))) => break,
                // The end does not come: whoever reads it sees that it was cut.
                Ok((_, Err(error))) => {
                    yield Err(std::io::Error::other(error));
                    break;
                }
                Err(error) => {
                    yield Err(std::io::Error::other(error));
                    break;
                }
            }
        }
    };
    ([(header::CONTENT_TYPE, MIME)], Body::from_stream(body)).into_response()
}

/// A walk through a folder.
struct Walk {
    files: Box<Files>,
    /// Paths for cells, and names in the tar, the next last.
    waiting: Vec<(String, String)>,
    current: Option<Reading>,
    is_over: bool,
}

/// File that is being packed.
struct Reading {
    file: Descriptor,
    offset: u64,
    /// Size as its header says; the file may be cut or grow meanwhile.
    size: u64,
}

impl Walk {
    /// Returns the next bytes; none at the end. Blocks.
    fn piece(&mut self) -> Result<Option<Bytes>, FileError> {
        let mut piece = BytesMut::new();
        while piece.len() < PIECE_BYTES && !self.is_over {
            if let Some(reading) = &mut self.current {
                let left = reading.size.saturating_sub(reading.offset);
                let length = u32::try_from(left.min(PIECE_BYTES as u64)).unwrap_or(u32::MAX);
                let mut read =
                    if left > 0 { self.files.read(reading.file, reading.offset, length)? } else { Vec::new() };
                if left > 0 && read.is_empty() {
                    read = vec![0; usize::try_from(length).unwrap_or_default()];
                }
                reading.offset = reading.offset.saturating_add(read.len() as u64);
                piece.extend_from_slice(&read);
                if reading.offset >= reading.size {
                    piece.extend_from_slice(&[0; BLOCK][..padding(reading.size)]);
                    let file = reading.file;
                    self.current = None;
                    self.files.close(file)?;
                }
            } else if let Some((path, name)) = self.waiting.pop() {
                self.entry(&path, &name, &mut piece)?;
            } else {
                piece.extend_from_slice(&[0; 2 * BLOCK]);
                self.is_over = true;
            }
        }
        Ok((!piece.is_empty()).then(|| piece.freeze()))
    }

    fn entry(&mut self, path: &str, name: &str, piece: &mut BytesMut) -> Result<(), FileError> {
        let stat = match self.files.stat_at(ROOT, path, true) {
            Ok(stat) => stat,
            // It has gone meanwhile, or is a link that leads nowhere.
            Err(_) if !name.is_empty() => return Ok(()),
            Err(error) => return Err(error),
        };
        match stat.kind {
            FileKind::Directory => {
                // A link to a folder is none: it may lead to where it stands.
                let is_link = self.files.stat_at(ROOT, path, false)?.kind != FileKind::Directory;
                if is_link && !name.is_empty() || name.matches('/').count() >= DEPTH_MAX {
                    return Ok(());
                }
                if !name.is_empty() {
                    piece.extend_from_slice(&head(&format!("{name}/"), b'5', 0, &stat));
                }
                let how = OpenHow { read: true, directory: true, follow_symlinks: true, ..OpenHow::default() };
                let folder = self.files.open(ROOT, path, how)?;
                let listed = self.files.entries(folder);
                self.files.close(folder)?;
                let mut names: Vec<String> = listed?.into_iter().map(|entry| entry.name).collect();
                names.sort_unstable_by(|a, b| b.cmp(a));
                let within = |own: String| {
                    let name = if name.is_empty() { own.clone() } else { format!("{name}/{own}") };
                    (format!("{path}/{own}"), name)
                };
                self.waiting.extend(names.into_iter().map(within));
            }
            FileKind::RegularFile => {
                let how = OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() };
                let Ok(file) = self.files.open(ROOT, path, how) else { return Ok(()) };
                let stat = self.files.stat(file)?;
                piece.extend_from_slice(&head(name, b'0', stat.size, &stat));
                self.current = Some(Reading { file, offset: 0, size: stat.size });
            }
            _ => {}
        }
        Ok(())
    }
}

/// Bytes up to the end of a block.
fn padding(size: u64) -> usize {
    usize::try_from(size.wrapping_neg() & WITHIN_BLOCK).unwrap_or_default()
}

/// Returns the blocks before the bytes of an entry.
fn head(name: &str, kind: u8, size: u64, stat: &Stat) -> Vec<u8> {
    const NAME: usize = 100;
    const SIZE_MAX: u64 = 0o77_777_777_777;
    let modified = stat.modified / 1_000_000_000;
    if name.len() <= NAME && size <= SIZE_MAX {
        return block(name, kind, size, modified);
    }
    // What has no room in the block stands before it.
    let record = |key: &str, value: &str| {
        let rest = format!(" {key}={value}\n");
        // The length counts its own digits.
        let with = |length: usize| rest.len().saturating_add(length.to_string().len());
        let mut length = with(0);
        while with(length) != length {
            length = with(length);
        }
        format!("{length}{rest}")
    };
    let mut records = record("path", name);
    if size > SIZE_MAX {
        records.push_str(&record("size", &size.to_string()));
    }
    let mut head = block("pax", b'x', records.len() as u64, modified);
    head.extend_from_slice(records.as_bytes());
    head.extend_from_slice(&[0; BLOCK][..padding(records.len() as u64)]);
    let short: String = name
        .chars()
        .scan(0, |bytes, c| {
            *bytes = usize::saturating_add(*bytes, c.len_utf8());
            (*bytes <= NAME).then_some(c)
        })
        .collect();
    head.extend(block(&short, kind, size.min(SIZE_MAX), modified));
    head
}

fn block(name: &str, kind: u8, size: u64, modified: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..].iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    let mode = if kind == b'5' { "0000755\0" } else { "0000644\0" };
    put(0, name.as_bytes());
    put(100, mode.as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{:011o}\0", modified.min(0o77_777_777_777)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Makes files and folders of a tar, below a folder of a session. Each file is whole or as it was; with a refusal, those that
/// came before stay.
pub(crate) async fn unpack(session: Session, folder: String, mut body: Body) -> Answer {
    let made = session.clone();
    let mut unpacking = on_a_thread(move || {
        let mut files = made.files();
        files.make_folders(&folder)?;
        Ok::<_, FileError>(Unpacking::new(made.clone(), files, folder))
    })
    .await??;
    while let Some(piece) = next_piece(&mut body, "tar").await? {
        unpacking = on_a_thread(move || {
            unpacking.feed(&piece)?;
            Ok::<_, Problem>(unpacking)
        })
        .await??;
    }
    unpacking.check_end()?;
    Ok(StatusCode::CREATED.into_response())
}

fn refused(detail: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "tar", format!("{detail}"))
}

/// Tar that is being unpacked.
struct Unpacking {
    session: Session,
    files: Files,
    folder: String,
    /// Bytes that were received and not parsed yet.
    rest: BytesMut,
    state: State,
    entries: usize,
    /// Name and size of the next entry, from extensions before its block.
    name: Option<String>,
    size: Option<u64>,
    trailing: usize,
}

enum State {
    /// The block of an entry comes next.
    Head,
    /// Bytes of a file.
    File { file: Descriptor, target: String, part: Unfinished, offset: u64, size: u64 },
    /// Extension of the next entry.
    Extension { is_pax: bool, size: u64 },
    /// Bytes to skip.
    Skip { left: u64 },
    /// Nothing but zeros may come.
    End,
}

impl Unpacking {
    fn new(session: Session, files: Files, folder: String) -> Unpacking {
        let (rest, state) = (BytesMut::new(), State::Head);
        Unpacking { session, files, folder, rest, state, entries: 0, name: None, size: None, trailing: 0 }
    }

    /// Unpacks the next bytes. Blocks.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.rest.extend_from_slice(bytes);
        while self.step()? {}
        Ok(())
    }

    fn check_end(&self) -> Result<(), Problem> {
        // Some writers leave the blocks of the end out.
        let is_whole = match self.state {
            State::End => true,
            State::Head => self.rest.is_empty() && self.entries > 0 && self.name.is_none(),
            _ => false,
        };
        if is_whole { Ok(()) } else { Err(refused("the tar broke off")) }
    }

    /// Parses the next item; returns false when more bytes must come first.
    fn step(&mut self) -> Result<bool, Problem> {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Head => {
                if self.rest.len() < BLOCK {
                    return Ok(false);
                }
                let block = self.rest.split_to(BLOCK);
                self.state = self.head(&block)?;
                Ok(true)
            }
            State::File { file, target, mut part, mut offset, size } => {
                let left = size.saturating_sub(offset);
                let there = usize::try_from(left).unwrap_or(usize::MAX).min(self.rest.len());
                let piece = self.rest.split_to(there);
                offset = self.files.write_all(file, offset, &piece)?;
                if offset < size {
                    self.state = State::File { file, target, part, offset, size };
                    return Ok(false);
                }
                self.files.close(file)?;
                if let Some(from) = part.part.clone() {
                    self.files.rename(ROOT, &from, ROOT, &target)?;
                    part.part = None;
                }
                self.state = State::Skip { left: padding(size) as u64 };
                Ok(true)
            }
            State::Extension { is_pax, size } => {
                let length = usize::try_from(size).unwrap_or(usize::MAX);
                if self.rest.len() < length {
                    self.state = State::Extension { is_pax, size };
                    return Ok(false);
                }
                let said = self.rest.split_to(length);
                if is_pax {
                    self.records(&said)?;
                } else {
                    let name = said.iter().position(|byte| *byte == 0).map_or(&said[..], |end| &said[..end]);
                    self.name = Some(text(name)?);
                }
                self.state = State::Skip { left: padding(size) as u64 };
                Ok(true)
            }
            State::Skip { left } => {
                let there = usize::try_from(left).unwrap_or(usize::MAX).min(self.rest.len());
                self.rest.advance(there);
                let left = left.saturating_sub(there as u64);
                self.state = if left == 0 { State::Head } else { State::Skip { left } };
                Ok(left == 0)
            }
            State::End => {
                self.state = State::End;
                self.trailing = self.trailing.saturating_add(self.rest.len());
                if self.trailing > TRAILING_BYTES_MAX || self.rest.iter().any(|byte| *byte != 0) {
                    return Err(refused("something comes behind the end of the tar"));
                }
                self.rest.clear();
                Ok(false)
            }
        }
    }

    /// Parses the block of an entry, and returns the state for the bytes behind it.
    fn head(&mut self, block: &[u8]) -> Result<State, Problem> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(State::End);
        }
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
            .sum();
        if number(&block[148..156]) != Some(sum) {
            return Err(refused("this is no tar: a checksum does not fit"));
        }
        let told = number(&block[124..136]).ok_or_else(|| refused("the size of an entry is no number"))?;
        let kind = block[156];
        match kind {
            b'x' | b'L' if told <= EXTENSION_BYTES_MAX => {
                return Ok(State::Extension { is_pax: kind == b'x', size: told });
            }
            b'g' if told <= EXTENSION_BYTES_MAX => {
                return Ok(State::Skip { left: told.saturating_add(padding(told) as u64) });
            }
            b'x' | b'L' | b'g' => return Err(refused("an entry says too much of itself")),
            _ => {}
        }
        let (named, sized) = (self.name.take(), self.size.take());
        let name = match named {
            Some(name) => name,
            None => {
                let until_nul = |bytes: &[u8]| text(bytes.split(|byte| *byte == 0).next().unwrap_or_default());
                let name = until_nul(&block[..100])?;
                let prefix = if block[257..262] == *b"ustar" && block[263..265] == *b"00" {
                    until_nul(&block[345..500])?
                } else {
                    String::new()
                };
                if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
            }
        };
        self.entries = self.entries.saturating_add(1);
        if self.entries > ENTRIES_MAX {
            return Err(refused(format_args!("a tar may have {ENTRIES_MAX} entries")));
        }
        let size = sized.unwrap_or(told);
        let path = self.path(&name)?;
        match kind {
            b'0' | 0 | b'7' if !name.ends_with('/') => self.begin(path, size),
            b'5' | b'0' | 0 => {
                self.files.make_folders(&path)?;
                Ok(State::Skip {
                    left: size.checked_add(padding(size) as u64).ok_or_else(|| refused("an entry is too large"))?,
                })
            }
            kind => {
                let what = match kind {
                    b'1' | b'2' => "a link",
                    b'3' | b'4' => "a device",
                    b'6' => "a pipe",
                    _ => "of an unknown kind",
                };
                Err(refused(format_args!("the entry `{name}` is {what}: only files and folders are taken")))
            }
        }
    }

    /// Begins a file.
    fn begin(&mut self, target: String, size: u64) -> Result<State, Problem> {
        let (parent, _) = target.rsplit_once('/').unwrap_or_default();
        self.files.make_folders(parent)?;
        let part = format!("{parent}/.upload-{}", characters(16));
        let how = OpenHow { create: true, exclusive: true, write: true, ..OpenHow::default() };
        let file = self.files.open(ROOT, &part, how)?;
        let part = Unfinished { session: self.session.clone(), part: Some(part) };
        Ok(State::File { file, target, part, offset: 0, size })
    }

    /// The path for cells of an entry.
    fn path(&self, name: &str) -> Result<String, Problem> {
        let bad = || refused(format_args!("the entry `{name}` does not lead to a place below the folder"));
        if name.starts_with('/') {
            return Err(bad());
        }
        let mut path = self.folder.clone();
        let mut depth = 0_usize;
        for part in name.split('/').filter(|part| !matches!(*part, "" | ".")) {
            depth = depth.saturating_add(1);
            if part == ".." || part.contains('\0') || depth > DEPTH_MAX {
                return Err(bad());
            }
            path.push('/');
            path.push_str(part);
        }
        // The folder itself may be named, which is there.
        if depth == 0 && !name.ends_with('/') && name != "." { Err(bad()) } else { Ok(path) }
    }

    /// Reads `LENGTH KEY=VALUE\n`, again and again.
    fn records(&mut self, mut said: &[u8]) -> Result<(), Problem> {
        let bad = || refused("what is said of an entry makes no sense");
        while !said.is_empty() {
            let space = said.iter().take(20).position(|byte| *byte == b' ').ok_or_else(bad)?;
            let length = std::str::from_utf8(&said[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let length =
                length.filter(|length| (space.saturating_add(3)..=said.len()).contains(length)).ok_or_else(bad)?;
            let (record, rest) = said.split_at(length);
            said = rest;
            let record =
                record.get(space.saturating_add(1)..).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(bad)?;
            let mut parts = record.splitn(2, |byte| *byte == b'=');
            let (key, value) = parts.next().zip(parts.next()).ok_or_else(bad)?;
            match key {
                b"path" => self.name = Some(text(value)?),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.size = Some(size.ok_or_else(bad)?);
                }
                // A file with holes is told of so, by its bytes without them.
                key if key.starts_with(b"GNU.sparse") => return Err(refused("a file with holes is not taken")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Result<String, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| refused("the name of an entry is no UTF-8"))?;
    Ok(text.to_owned())
}

/// Parses a number in octal digits, or in base 256 behind a first byte of 0x80.
fn number(field: &[u8]) -> Option<u64> {
    if let Some((first, rest)) = field.split_first()
        && *first == 0x80
    {
        return rest.iter().try_fold(0_u64, |number, byte| number.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    // What is no digit ends no number: a size that nobody can read is not taken for none.
    let digits = field.trim_ascii_start().split(|byte| matches!(*byte, b' ' | 0)).next().unwrap_or_default();
    digits.iter().try_fold(0_u64, |number, digit| {
        matches!(digit, b'0'..=b'7').then(|| number.checked_mul(8)?.checked_add(u64::from(digit & 7))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"     17 "), Some(15));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\x02"), Some(258));
        assert_eq!((number(b"\0\0\0\0"), number(b"0000644 \0")), (Some(0), Some(420)));
        for none in [&b"99999999999"[..], b"zzzzzzzzzzz", b"17x\0", b"-1\0", &[0xff; 12]] {
            assert_eq!(number(none), None, "{none:?}");
        }
        assert_eq!(number(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
    }

    #[test]
    fn a_block_has_the_sum_that_it_says() {
        let block = block("name", b'0', 8, 0);
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
            .sum();
        assert_eq!(number(&block[148..156]), Some(sum));
        assert_eq!((block.len(), padding(0), padding(1), padding(512)), (512, 0, 511, 0));
    }
}
