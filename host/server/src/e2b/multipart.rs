//! Forms as clients upload files in them: parts between boundaries, each with a few headers.

use bytes::Bytes;

use crate::problem::Problem;

/// Files of one form.
const PARTS_MAX: usize = 1_000;
/// Bytes of the headers of a part.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Bytes of a boundary, as the standard has it.
const BOUNDARY_BYTES_MAX: usize = 70;

/// A part that is a file.
#[derive(Debug)]
pub(super) struct Part {
    /// Its name, which is a path to clients.
    pub(super) name: Option<String>,
    pub(super) data: Bytes,
}

/// The boundary that a content type names, if it is that of a form.
pub(super) fn boundary(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    (!boundary.is_empty() && boundary.len() <= BOUNDARY_BYTES_MAX).then_some(boundary)
}

/// Takes a form apart.
pub(super) fn parts(body: &Bytes, boundary: &str) -> Result<Vec<Part>, Problem> {
    let bad = || Problem::bad("the body of this request is no form as its content type says");
    let delimiter = format!("--{boundary}");
    let between = format!("\r\n{delimiter}");
    let mut place = find(body, 0, delimiter.as_bytes()).ok_or_else(bad)?.saturating_add(delimiter.len());
    let mut parts = Vec::new();
    loop {
        let rest = body.get(place..).ok_or_else(bad)?;
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        if parts.len() >= PARTS_MAX {
            return Err(Problem::bad(format!("a form may have {PARTS_MAX} files")));
        }
        // Behind a boundary there may be blanks.
        let line =
            rest.iter().position(|byte| *byte == b'\n').filter(|end| *end < BOUNDARY_BYTES_MAX).ok_or_else(bad)?;
        let head = place.saturating_add(line).saturating_add(1);
        let limit = body.len().min(head.saturating_add(HEADERS_BYTES_MAX));
        let end = find(&body[..limit], head.saturating_sub(2), b"\r\n\r\n").ok_or_else(bad)?;
        let name = body.get(head..end).map(name).ok_or_else(bad)?;
        let data = end.saturating_add(4);
        let next = find(body, end.saturating_add(2), between.as_bytes()).ok_or_else(bad)?;
        // An empty part shares its line break with its headers.
        let data = body.slice(data.min(next.max(data))..next.max(data));
        place = next.saturating_add(between.len());
        parts.push(Part { name, data });
    }
}

/// The name of the file among the headers of a part.
fn name(headers: &[u8]) -> Option<String> {
    let headers = String::from_utf8_lossy(headers);
    let disposition = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (_, rest) = disposition.split_once("filename=\"")?;
    let (name, _) = rest.split_once('"')?;
    // What would end the name is written so, and nothing else is.
    Some(name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"))
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let (first, rest) = what.split_first()?;
    let mut place = from;
    while let Some(at) = bytes.get(place..)?.iter().position(|byte| byte == first) {
        let found = place.checked_add(at)?;
        place = found.checked_add(1)?;
        if bytes.get(place..)?.starts_with(rest) {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_taken_apart() {
        let body = Bytes::from_static(
            b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a %22b%22.txt\"\r\n\
            Content-Type: text/plain\r\n\r\nline\r\n--X\r\n\r\n--XX\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n\r\n--XX--\r\n",
        );
        let parts = parts(&body, "XX").expect("a form");
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].name.as_deref(), Some("/a \"b\".txt"));
        assert_eq!(&parts[0].data[..], b"line\r\n--X\r\n");
        assert!(parts[1].name.is_none() && parts[1].data.is_empty());
    }

    #[test]
    fn whatever_is_no_form_is_refused() {
        for body in ["", "--XX", "--XX\r\n", "--XX\r\n\r\n", "--XX\r\na: b\r\n\r\nno end", "text", "--XX--"] {
            let parts = parts(&Bytes::from_static(body.as_bytes()), "XX");
            assert!(parts.is_err() || parts.is_ok_and(|parts| parts.is_empty()), "{body:?}");
        }
        assert_eq!(boundary("multipart/form-data; charset=x; boundary=\"ab c\""), Some("ab c"));
        for kind in ["text/plain", "multipart/form-data", "multipart/form-data; boundary="] {
            assert_eq!(boundary(kind), None);
        }
    }
}
