//! Results of tools: text and images that a model can take, and links to the rest.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_engine::{
    RunResult,
    artifacts::{ArtifactStore, Description},
    pictures::{Fit, Fitted, Smaller, fit},
    results::{CellResult, estimated_tokens, file_of},
};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Value, json};

use super::Told;
use crate::tenant::{Tenant, on_a_thread};

/// Tokens of a reply, as they are estimated: clients refuse more than 25,000 by their own count, or put them away.
const TOKENS_MAX: usize = 20_000;
/// Tokens that are kept for the text of a reply with images.
const TEXT_TOKENS_MIN: usize = 10_000;
/// Pixels of an image that models count as a token, and tokens of the largest one.
const PIXELS_A_TOKEN: u64 = 750;
const IMAGE_TOKENS_MAX: usize = 1_600;
/// Images of a run that are shown; of more, the first, and a line says so.
const IMAGES_MAX: usize = 24;
/// Width and height of an image that is shown.
const SIDE_MAX: u32 = 1_568;
/// Bytes of a reply: clients refuse more than 1 MiB.
const REPLY_BYTES_MAX: usize = 1_000_000;
/// Bytes of a reply besides its text and its images.
const FRAME_BYTES: usize = 1_000;
/// Bytes of the displayed JSON values in the structure of a reply; of more, those that fit.
const VALUES_BYTES_MAX: usize = 50_000;
/// Bytes of the message of a failure in the structure of a reply.
const MESSAGE_BYTES_MAX: usize = 1_000;
/// Bytes of a reply besides its text, its images, and its text in the structure.
const STRUCTURE_BYTES: usize = FRAME_BYTES + VALUES_BYTES_MAX + 100_000;
/// Bytes of a block besides its data.
const BLOCK_BYTES: usize = 200;

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// An image of a run: its type, and its file.
type Picture = (String, Vec<u8>);

/// Returns the tool result for the result of a run.
pub(super) async fn of_run(tenant: &Tenant, session: &str, is_new: bool, result: &RunResult) -> Told {
    let raster = || result.images().filter_map(|image| Some((image.mime_type, file_of(image)?)));
    let count = raster().count();
    let images: Vec<Picture> =
        raster().take(IMAGES_MAX).map(|(mime_type, file)| (mime_type.to_owned(), file.into_owned())).collect();
    let each = image_tokens(images.len());
    let shown = result.shown_in_tokens(TOKENS_MAX.saturating_sub(each.saturating_mul(images.len())));
    let mut text = shown.text;
    if let Some(kept) = result.kept_text().filter(|_| shown.truncation.is_some()) {
        text.push_str(&format!("\n\nThe output was cut; {}", kept.place()));
    }
    let (store, owner) = (tenant.artifacts.clone(), session.to_owned());
    let room = REPLY_BYTES_MAX.saturating_sub(json_bytes(&text).saturating_mul(2)).saturating_sub(STRUCTURE_BYTES);
    let (blocks, notes) = on_a_thread(move || image_blocks(images, each, room, &store, &owner)).await?;
    let left_out = count.saturating_sub(IMAGES_MAX);
    let more = (left_out > 0).then(|| format!("images {} to {count} are not shown", IMAGES_MAX.saturating_add(1)));
    let notes: Vec<String> = notes.into_iter().chain(more).collect();
    if !notes.is_empty() {
        text.push_str(&format!("\n\n({})", notes.join("; ")));
    }
    if is_new {
        text.push_str(&format!("\n\n(session {session} is new: it has no names and no files of earlier ones)"));
    }
    let structured = structure(session, is_new, result, &text, count);
    let content: Vec<ContentBlock> = [ContentBlock::text(text)].into_iter().chain(blocks).collect();
    let mut told = if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    told.structured_content = Some(structured);
    Ok(told)
}

/// Returns the structured content for the result of a run.
fn structure(session: &str, is_new: bool, result: &RunResult, text: &str, images: usize) -> Value {
    let cell = |cell: &CellResult| {
        let mut json = json!({
            "language": cell.cell.language.code(),
            "status": cell.status.as_str(),
            "durationMs": cell.duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        });
        if let Some(failure) = &cell.failure {
            json["error"] = json!({
                "kind": failure.kind.as_str(),
                "type": failure.name,
                "message": cut(&failure.message, MESSAGE_BYTES_MAX),
                "line": failure.line,
            });
        }
        json
    };
    let (mut room, mut values, mut left_out) = (VALUES_BYTES_MAX, Vec::new(), 0_u64);
    for text in result.jsons() {
        match room.checked_sub(text.len()).zip(serde_json::from_str::<Value>(text).ok()) {
            Some((left, value)) => {
                room = left;
                values.push(value);
            }
            None => left_out = left_out.saturating_add(1),
        }
    }
    json!({
        "session": session,
        "isNew": is_new,
        "isError": result.is_error,
        "output": text,
        "cells": result.cells.iter().map(cell).collect::<Vec<_>>(),
        "values": values,
        "valuesLeftOut": left_out,
        "images": images,
    })
}

fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// A text, and the same as structure.
pub(super) fn with_structure(text: String, structured: Value) -> CallToolResult {
    let mut told = CallToolResult::success(vec![ContentBlock::text(text)]);
    told.structured_content = Some(structured);
    told
}

/// Returns the tokens that each of so many images may have.
fn image_tokens(count: usize) -> usize {
    let room = TOKENS_MAX.saturating_sub(TEXT_TOKENS_MIN);
    room.checked_div(count).unwrap_or(room).min(IMAGE_TOKENS_MAX)
}

/// Bytes of a text in JSON.
fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |json| json.len())
}

/// Makes images fit into `room` bytes together. Returns their blocks, with links to those that were made smaller, and notes on what was
/// done to them. Blocks.
fn image_blocks(
    images: Vec<Picture>,
    tokens: usize,
    room: usize,
    store: &ArtifactStore,
    session: &str,
) -> (Vec<ContentBlock>, Vec<String>) {
    let (mut blocks, mut notes) = (Vec::new(), Vec::new());
    let (mut room, total) = (room, images.len());
    for (index, (mime_type, bytes)) in images.into_iter().enumerate() {
        let number = index.saturating_add(1);
        // What one does not need is there for those behind it.
        let own = room.checked_div(total.saturating_sub(index)).unwrap_or(room);
        let own = own.saturating_sub(BLOCK_BYTES.saturating_mul(2));
        let (shown, note) = match fit(&bytes, size_of(own, tokens)) {
            Fitted::AsItIs => (Some(ContentBlock::image(base64(&bytes), mime_type)), None),
            Fitted::Smaller(Smaller { mime_type: kind, bytes: small, from, to }) => {
                let note = match from == to {
                    true => format!("image {number} was compressed: {} bytes were {}", small.len(), bytes.len()),
                    false => format!("image {number} was made smaller: {}x{} of {}x{}", to.0, to.1, from.0, from.1),
                };
                (Some(ContentBlock::image(base64(&small), kind)), Some((note, mime_type)))
            }
            Fitted::Unreadable => (None, Some((format!("image {number} cannot be read, and was left out"), mime_type))),
        };
        let image = data_bytes(shown.as_ref());
        blocks.extend(shown);
        room = room.saturating_sub(image).saturating_sub(BLOCK_BYTES);
        if let Some((note, mime_type)) = note {
            notes.push(note);
            let what = Description { mime_type: &mime_type, title: Some("displayed image") };
            if let Ok(kept) = store.put(session, &bytes, what) {
                let mut link = Resource::new(kept.uri(), format!("image {number} in full size"));
                link.mime_type = Some(mime_type);
                link.size = Some(kept.size_bytes);
                blocks.push(ContentBlock::resource_link(link));
                room = room.saturating_sub(BLOCK_BYTES);
            }
        }
    }
    (blocks, notes)
}

/// Returns the bytes of the data of a block.
fn data_bytes(block: Option<&ContentBlock>) -> usize {
    block.and_then(|block| block.as_image()).map_or(0, |image| image.data.len())
}

/// Size that an image may have that is given so many bytes as base64, and so many tokens.
fn size_of(base64_bytes: usize, tokens: usize) -> Fit {
    let pixels = u64::try_from(tokens).unwrap_or(u64::MAX).saturating_mul(PIXELS_A_TOKEN);
    Fit { bytes: (base64_bytes / 4).saturating_mul(3), side: SIDE_MAX, pixels }
}

/// A text that is no output of a run, cut to what a reply may have.
pub(super) fn cut_text(text: &str) -> String {
    let (mut end, mut tokens) = (text.floor_char_boundary(REPLY_BYTES_MAX / 2), TOKENS_MAX.saturating_add(1));
    while tokens > TOKENS_MAX {
        tokens = estimated_tokens(&text[..end]);
        if tokens > TOKENS_MAX {
            let fits = end.saturating_mul(TOKENS_MAX).checked_div(tokens).unwrap_or(0);
            end = text.floor_char_boundary(fits.min(end.saturating_sub(1)));
        }
    }
    text[..end].to_owned()
}

/// A file that is read.
pub(super) fn of_file(bytes: Vec<u8>, size: u64) -> Told {
    let mut structured = json!({"sizeBytes": size});
    let block = match String::from_utf8(bytes) {
        Ok(text) => {
            let shown = cut_text(&text);
            structured["text"] = shown.as_str().into();
            match size.saturating_sub(shown.len() as u64) {
                0 => ContentBlock::text(shown),
                left_out => ContentBlock::text(format!("{shown}\n\n({left_out} more bytes were left out)")),
            }
        }
        Err(error) => {
            let bytes = error.as_bytes();
            let own = REPLY_BYTES_MAX.saturating_sub(FRAME_BYTES);
            match (fit(bytes, size_of(own, IMAGE_TOKENS_MAX)), image::guess_format(bytes)) {
                (Fitted::AsItIs, Ok(format)) => ContentBlock::image(base64(bytes), format.to_mime_type()),
                (Fitted::Smaller(small), _) => ContentBlock::image(base64(&small.bytes), small.mime_type),
                _ => ContentBlock::text(format!("({size} bytes that are no text; read them in a cell)")),
            }
        }
    };
    let mut told = CallToolResult::success(vec![block]);
    told.structured_content = Some(structured);
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_what_a_reply_may_have() {
        for text in ["word ".repeat(100_000), "1.5,".repeat(30_000), "世".repeat(100_000)] {
            let cut = cut_text(&text);
            assert!(text.starts_with(&cut) && cut.len() >= TOKENS_MAX, "{}", cut.len());
            assert!(estimated_tokens(&cut) <= TOKENS_MAX);
        }
        assert_eq!(cut_text("short"), "short");
    }

    #[test]
    fn images_have_less_the_more_there_are() {
        assert_eq!([1, 8, 12, 24].map(image_tokens), [1_600, 1_250, 833, 416]);
    }
}
