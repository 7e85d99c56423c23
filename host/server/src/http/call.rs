//! Authenticated request, and the parts that interfaces read of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum_core::body::Body;
use bytes::{Bytes, BytesMut};
use cellar_core::{
    budget::{Budget, Lease},
    limits::REQUEST_VALUES_MAX,
    mime::json_values,
};
use http::{Method, StatusCode, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::State;
use crate::{access::Grant, problem::Problem, tenant::Tenant};

/// Timeout of the body of a request, other than a file.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a body that are on nobody's account.
pub(crate) const FREE_BYTES: usize = 64 << 10;
/// Bytes of an Idempotency-Key.
const KEY_BYTES_MAX: usize = 255;
/// Header that tells a worker its tenant's usage of the quotas that are counted in the process in front, in the form of
/// `GET /v1/tenant`.
pub(crate) const QUOTAS_IN_FRONT: &str = "cellar-quotas-in-front";

/// Request that was authenticated and admitted.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) tenant: Arc<Tenant>,
    /// Authorisation by which it was let through.
    pub(crate) grant: Grant,
    pub(crate) parts: Parts,
    pub(crate) body: Body,
}

impl Call {
    /// Reads the body of a request, other than a file.
    pub(crate) async fn body(&mut self) -> Result<Buffered, Problem> {
        read_body(std::mem::take(&mut self.body), self.state.body_bytes_max, &self.tenant.buffers).await
    }

    /// Takes the body, to be read as a stream.
    pub(crate) fn stream(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Parses the query: only known names, each at most once.
    pub(crate) fn query(&self, known: &[&str]) -> Result<HashMap<String, String>, Problem> {
        let mut found = HashMap::new();
        let query = self.parts.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let known = if known.is_empty() { "nothing".to_owned() } else { cellar_core::text::list(known) };
                return Err(Problem::bad(format!("`{name}` is not known behind `?`; known is {known}")));
            }
            if found.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(Problem::bad(format!("`{name}` is given twice behind `?`")));
            }
        }
        Ok(found)
    }

    /// Returns the Idempotency-Key, if there is one.
    pub(crate) fn key(&self) -> Result<Option<String>, Problem> {
        let Some(value) = self.parts.headers.get("idempotency-key") else { return Ok(None) };
        let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES_MAX);
        let bad = || Problem::bad(format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} visible characters"));
        text.map(|text| Some(text.to_owned())).ok_or_else(bad)
    }

    /// Returns the quotas that are counted in the process in front, from [`QUOTAS_IN_FRONT`]. Empty in a server that is
    /// no worker, because there the header is the client's.
    pub(crate) fn quotas_in_front(&self) -> Map<String, Value> {
        let told = self.parts.headers.get(QUOTAS_IN_FRONT).filter(|_| self.state.isolation.is_of_tenant);
        told.and_then(|told| serde_json::from_slice(told.as_bytes()).ok()).unwrap_or_default()
    }
}

/// Returns true for methods that change nothing.
pub(crate) fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// A body that was read, on its tenant's account until this is dropped.
#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    pub(crate) lease: Lease,
}

impl std::ops::Deref for Buffered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Refusal of bytes that a tenant's budget has not left.
pub(crate) fn no_buffers() -> Problem {
    let detail = "this tenant has as many bytes on their way in as it may; send less at once";
    Problem::limit("buffered_bytes", detail, Duration::from_secs(1))
}

/// Reads the body of a request, other than a file, of at most `most` bytes. [`FREE_BYTES`] of it are on nobody's account,
/// since requests under way are bounded.
///
/// # Errors
/// It is too large, takes too long to come, or breaks off, or the budget has not so many bytes left.
pub(crate) async fn read_body(body: Body, most: usize, budget: &Budget) -> Result<Buffered, Problem> {
    let too_large = || {
        let detail = format!("the body of this request may have {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", detail)
    };
    // One that says itself that it is too large is not waited for.
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    // THREAT: T13
    let lease = budget.take(0).ok_or_else(no_buffers)?;
    let mut body = Limited::new(body, most);
    let read = async {
        let mut gathered = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => too_large(),
                false => Problem::bad("the body broke off"),
            })?;
            let Some(data) = frame.data_ref() else { continue };
            let free = FREE_BYTES.saturating_sub(gathered.len());
            if !lease.grow(data.len().saturating_sub(free)) {
                return Err(no_buffers());
            }
            gathered.extend_from_slice(data);
        }
        Ok(gathered.freeze())
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, read).await.map_err(|_| {
        let detail = format!("the body took more than {} seconds to come", BODY_TIMEOUT.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body-timeout", detail)
    })?;
    Ok(Buffered { bytes: read?, lease })
}

/// Message for a path that is not UTF-8.
const NOT_UTF8: &str = "the path of this request is no UTF-8 text with `%XX` in the place of other bytes";

/// Returns the segments of a path, behind the first.
pub(crate) fn names(path: &str) -> Result<Vec<String>, Problem> {
    path.split('/').skip(2).map(decoded).collect()
}

/// Decodes the `%XX` of a segment.
pub(crate) fn decoded(name: &str) -> Result<String, Problem> {
    // The decoder leaves a `%` alone that begins no byte.
    let is_byte = |rest: &str| matches!(rest.as_bytes(), [high, low, ..] if [high, low].iter().all(|digit| digit.is_ascii_hexdigit()));
    let text = percent_decode_str(name).decode_utf8().ok().filter(|_| name.split('%').skip(1).all(is_byte));
    text.map(|text| text.into_owned()).ok_or_else(|| Problem::bad(NOT_UTF8))
}

/// Refuses JSON with so many values that parsing it would take many times its bytes.
pub(crate) fn check_values(json: &[u8]) -> Result<(), Problem> {
    // Few values need no counting: each has a byte at least.
    let values = if json.len() > REQUEST_VALUES_MAX { json_values(json) } else { 0 };
    if values > REQUEST_VALUES_MAX {
        return Err(Problem::bad(format!(
            "the body of this request has {values} values, at most {REQUEST_VALUES_MAX} are read"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_text() {
        assert_eq!(decoded("a%20b%2Fc%c3%a9").expect("text"), "a b/cé");
        for name in ["%", "%2", "%zz", "%ff", "a%+1"] {
            assert!(decoded(name).is_err(), "{name}");
        }
    }
}
