//! Conversion of an MCP tool's result to a cell's value.

use cellar_engine::bridges::{CallError, CallErrorKind, Response};
use cellar_secrets::clip;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

/// Returns the result of a call: its structured content if it has some, else its blocks. A single block is returned as it
/// is, several as a list; a single text that is JSON is parsed.
///
/// # Errors
/// The tool reported an error; the message contains it.
pub(super) fn response(who: &str, result: CallToolResult) -> Result<Response, CallError> {
    if result.is_error == Some(true) {
        let said = words(&result.content);
        let said = if said.is_empty() { "and does not say why".to_owned() } else { said };
        return Err(CallError::new(CallErrorKind::Failed, format!("{who} failed: {said}")));
    }
    let value = match (result.structured_content, <[ContentBlock; 1]>::try_from(result.content)) {
        // A text has integers of more than 64 bits as the server wrote them.
        (structured, Ok([ContentBlock::Text(block)])) => {
            match (structured, serde_json::from_str::<Value>(&block.text)) {
                (None, Ok(_)) => return Ok(Response::Json(block.text)),
                (Some(value), Ok(read)) if value == read => return Ok(Response::Json(block.text)),
                (Some(value), Ok(read)) if value == json!({"result": read}) => {
                    return Ok(Response::Json(format!("{{\"result\":{}}}", block.text)));
                }
                (Some(value), _) => value,
                (None, Err(_)) => Value::String(block.text),
            }
        }
        (Some(value), _) => value,
        (None, Ok([block])) => plain(block),
        (None, Err(blocks)) if blocks.is_empty() => Value::Null,
        (None, Err(blocks)) => blocks.into_iter().map(plain).collect(),
    };
    Ok(Response::Json(value.to_string()))
}

fn words(content: &[ContentBlock]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        ContentBlock::Text(block) => Some(block.text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    // Lines are kept: they may be a traceback.
    text.lines().take(50).map(clip).collect::<Vec<_>>().join("\n")
}

fn plain(block: ContentBlock) -> Value {
    match block {
        ContentBlock::Text(block) => Value::String(block.text),
        ContentBlock::Image(block) => json!({"mimeType": block.mime_type, "data": block.data}),
        ContentBlock::Audio(block) => json!({"mimeType": block.mime_type, "data": block.data}),
        ContentBlock::Resource(block) => match block.resource {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                json!({"uri": uri, "mimeType": mime_type, "text": text})
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                json!({"uri": uri, "mimeType": mime_type, "data": blob})
            }
            other => serde_json::to_value(other).unwrap_or_default(),
        },
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_texts_reach_cells_as_they_were_written() {
        let said = |text: &str, structured: Option<Value>| {
            let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
            result.structured_content = structured;
            match response("a tool", result) {
                Ok(Response::Json(json)) => json,
                other => panic!("{other:?}"),
            }
        };
        // What a number of more than 64 bits is to the SDK.
        let rounded = json!(123_456_789_012_345_678_901_234_567_890_f64);
        let text = r#"{"id":123456789012345678901234567890}"#;
        assert_eq!(said(text, None), text);
        assert_eq!(said(text, Some(json!({"id": rounded}))), text);
        assert_eq!(said(text, Some(json!({"result": {"id": rounded}}))), format!(r#"{{"result":{text}}}"#));
        assert_eq!(said(text, Some(json!({"id": 1}))), r#"{"id":1}"#);
        assert_eq!(said("words", None), r#""words""#);
        assert_eq!(said("words", Some(json!([1]))), "[1]");
    }
}
