//! Results of tools: text and images that a model can take, and links to the rest.

use std::io::Cursor;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_engine::{RunResult, artifacts::Description, mime::MimeData};
use image::{ImageFormat, ImageReader, Limits, imageops::FilterType};
use rmcp::model::{CallToolResult, ContentBlock, Resource};

use super::Told;
use crate::tenant::{Tenant, on_a_thread};

/// Width of an image that is shown.
const WIDTH_MAX: u32 = 1_024;
/// Images of a run that are shown; of more, the first.
const IMAGES_MAX: usize = 8;
/// Memory that reading an image may take.
const DECODE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a picture that is shown as it is.
const IMAGE_BYTES_MAX: usize = 400 << 10;

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns the tool result for the result of a run.
pub(super) async fn of_run(tenant: &Tenant, session: &str, is_new: bool, result: &RunResult) -> Told {
    let shown = result.shown();
    let mut text = shown.text;
    if let Some(kept) = result.kept_text().filter(|_| shown.truncation.is_some()) {
        text.push_str(&format!("\n\nThe output was cut; all of it is {}", kept.place()));
    }
    if is_new {
        text.push_str(&format!("\n\n(session {session}: name it to go on with its names and files)"));
    }
    let mut content = vec![ContentBlock::text(text)];
    let images: Vec<(String, Vec<u8>)> = result
        .images()
        .take(IMAGES_MAX)
        .filter_map(|image| {
            let bytes = match image.data {
                MimeData::Binary(bytes) => bytes.clone(),
                MimeData::Text(_) if image.mime_type == "image/svg+xml" => return None,
                MimeData::Text(text) => STANDARD.decode(text).ok()?,
            };
            Some((image.mime_type.to_owned(), bytes))
        })
        .collect();
    let (store, session) = (tenant.artifacts.clone(), session.to_owned());
    let blocks = on_a_thread(move || {
        let mut blocks = Vec::new();
        for (mime_type, bytes) in images {
            match fitted(&bytes) {
                Fitted::AsItIs => blocks.push(ContentBlock::image(base64(&bytes), mime_type)),
                Fitted::Smaller(png) => {
                    blocks.push(ContentBlock::image(base64(&png), "image/png"));
                    let what = Description { mime_type: &mime_type, title: Some("displayed image") };
                    if let Ok(kept) = store.put(&session, &bytes, what) {
                        let mut link = Resource::new(kept.uri(), "the image in full size");
                        link.mime_type = Some(mime_type);
                        link.size = Some(kept.size_bytes);
                        blocks.push(ContentBlock::resource_link(link));
                    }
                }
                Fitted::NotAtAll => blocks.push(ContentBlock::text("(an image that cannot be shown was left out)")),
            }
        }
        blocks
    });
    content.extend(blocks.await?);
    Ok(if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) })
}

/// A file that is read.
pub(super) fn of_file(bytes: Vec<u8>, size: u64) -> Told {
    let left_out = size.saturating_sub(bytes.len() as u64);
    let block = match (String::from_utf8(bytes), left_out) {
        (Ok(text), 0) => ContentBlock::text(text),
        (Ok(text), left_out) => ContentBlock::text(format!("{text}\n\n({left_out} more bytes were left out)")),
        (Err(error), left_out) => match (fitted(error.as_bytes()), image::guess_format(error.as_bytes())) {
            (Fitted::AsItIs, Ok(format)) => ContentBlock::image(base64(error.as_bytes()), format.to_mime_type()),
            (Fitted::Smaller(png), _) => ContentBlock::image(base64(&png), "image/png"),
            _ => ContentBlock::text(format!(
                "({} bytes that are no text; read them in a cell)",
                left_out.saturating_add(error.as_bytes().len() as u64)
            )),
        },
    };
    Ok(CallToolResult::success(vec![block]))
}

/// Form in which an image is shown.
enum Fitted {
    AsItIs,
    /// Scaled down, as PNG.
    Smaller(Vec<u8>),
    /// Left out, because it cannot be read.
    NotAtAll,
}

/// Scales an image down to what clients accept. Blocks.
fn fitted(bytes: &[u8]) -> Fitted {
    let read = || {
        let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
        let (width, _) = reader.into_dimensions().ok()?;
        if width <= WIDTH_MAX && bytes.len() <= IMAGE_BYTES_MAX {
            return Some(Fitted::AsItIs);
        }
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
        let mut limits = Limits::default();
        limits.max_alloc = Some(DECODE_BYTES_MAX);
        reader.limits(limits);
        let image = reader.decode().ok()?;
        let smaller = image.resize(WIDTH_MAX, WIDTH_MAX, FilterType::Triangle);
        let mut png = Cursor::new(Vec::new());
        smaller.write_to(&mut png, ImageFormat::Png).ok()?;
        Some(Fitted::Smaller(png.into_inner()))
    };
    read().unwrap_or(Fitted::NotAtAll)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_made_to_fit() {
        let png = |width: u32| {
            let mut bytes = Cursor::new(Vec::new());
            image::DynamicImage::new_rgb8(width, 10).write_to(&mut bytes, ImageFormat::Png).expect("a picture");
            bytes.into_inner()
        };
        assert!(matches!(fitted(&png(1_024)), Fitted::AsItIs));
        let Fitted::Smaller(small) = fitted(&png(3_000)) else { panic!("it is made smaller") };
        let found = ImageReader::new(Cursor::new(small)).with_guessed_format().expect("a format");
        assert_eq!(found.into_dimensions().expect("dimensions").0, 1_024);
        assert!(matches!(fitted(b"GIF89a, or so"), Fitted::NotAtAll));
    }
}
