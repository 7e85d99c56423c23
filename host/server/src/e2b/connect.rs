//! The protocol Connect in its JSON form, as far as clients use it: calls with one answer, and calls that are answered by
//! a stream of enveloped messages.

use axum_core::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::told;
use crate::problem::Problem;

/// MIME type of a stream's messages.
const STREAM_TYPE: &str = "application/connect+json";
/// Flag of the last envelope of a stream.
const END: u8 = 2;

/// Returns the protocol's code for the status of a problem.
fn code(problem: &Problem) -> &'static str {
    match problem.status() {
        StatusCode::BAD_REQUEST => "invalid_argument",
        StatusCode::UNAUTHORIZED => "unauthenticated",
        StatusCode::FORBIDDEN => "permission_denied",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::CONFLICT => "already_exists",
        // The word for what is used up is that of too many requests to clients.
        StatusCode::PRECONDITION_FAILED | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::INSUFFICIENT_STORAGE => {
            "failed_precondition"
        }
        StatusCode::TOO_MANY_REQUESTS => "resource_exhausted",
        StatusCode::REQUEST_TIMEOUT => "deadline_exceeded",
        StatusCode::NOT_IMPLEMENTED => "unimplemented",
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "internal",
    }
}

/// Returns an error as the response to a call.
pub(super) fn refusal(problem: &Problem) -> Response {
    told(problem.status(), &error(problem))
}

/// Returns an error as a message.
pub(super) fn error(problem: &Problem) -> Value {
    json!({ "code": code(problem), "message": problem.words() })
}

/// Returns a message of a stream in its envelope.
pub(super) fn envelope(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = BytesMut::with_capacity(text.len().saturating_add(5));
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    bytes.put_slice(text.as_bytes());
    bytes.freeze()
}

/// Returns the last message of a stream.
pub(super) fn end(problem: Option<&Problem>) -> Bytes {
    envelope(END, &problem.map_or_else(|| json!({}), |problem| json!({ "error": error(problem) })))
}

/// Returns the response to a call that is answered by a stream.
pub(super) fn stream(body: axum_core::body::Body) -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, STREAM_TYPE)], body).into_response()
}

/// Returns the length of the first message and its envelope, once all of it is there.
pub(super) fn length(bytes: &[u8], message_bytes_max: usize) -> Result<Option<usize>, Problem> {
    let Some(([_, length @ ..], rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > message_bytes_max {
        return Err(Problem::bad(format!("a message of this call has at most {message_bytes_max} bytes")));
    }
    Ok((rest.len() >= length).then(|| length.saturating_add(5)))
}

/// Returns the message in the body of a call that is answered by a stream: one envelope, without compression.
pub(super) fn opened(body: &[u8]) -> Result<&[u8], Problem> {
    let bad = || Problem::bad("the body of this call is one message in its envelope, which is not compressed");
    let ([0, length @ ..], rest) = body.split_first_chunk::<5>().ok_or_else(bad)? else { return Err(bad()) };
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| bad())?;
    rest.get(..length).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_are_opened_and_nothing_else_is() {
        let message = json!({"path": "/a"});
        assert_eq!(opened(&envelope(0, &message)).expect("a message"), message.to_string().as_bytes());
        for body in [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\0", b"\0\0\0\0\x05abc", b"\0\xff\xff\xff\xff"] {
            assert!(opened(body).is_err(), "{body:?}");
        }
        assert_eq!(&end(None)[..], b"\x02\0\0\0\x02{}");
    }
}
