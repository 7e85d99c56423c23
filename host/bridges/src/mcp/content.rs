//! What a tool of an MCP server returns, as cells get it.

use cellar_engine::bridges::{CallError, CallErrorKind, Response};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::text::clip;

/// The result of a call: its structured content if it has some, else its blocks. One block stands for itself, several
/// are a list; a lone text that is JSON is what it says.
///
/// # Errors
/// The tool said that it failed; the message has its words.
pub(super) fn response(who: &str, result: CallToolResult) -> Result<Response, CallError> {
    if result.is_error == Some(true) {
        let said = words(&result.content);
        let said = if said.is_empty() { "and does not say why".to_owned() } else { said };
        return Err(CallError::new(CallErrorKind::Failed, format!("{who} failed: {said}")));
    }
    let value = match (result.structured_content, result.content) {
        (Some(value), _) => value,
        (None, content) => match <[ContentBlock; 1]>::try_from(content) {
            Ok([ContentBlock::Text(block)]) => serde_json::from_str(&block.text).unwrap_or(Value::String(block.text)),
            Ok([block]) => plain(block),
            Err(blocks) if blocks.is_empty() => Value::Null,
            Err(blocks) => blocks.into_iter().map(plain).collect(),
        },
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
