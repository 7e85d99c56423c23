//! Images of a result, made to fit what models take.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_core::mime::{Image, MimeBundle, MimeData};

use super::RunResult;
use crate::pictures::{self, Fit, Fitted, Smaller};

/// Returns the file of a raster image; `None` for a vector image, and for a text that is no file.
pub fn file_of(image: Image<'_>) -> Option<Cow<'_, [u8]>> {
    match image.data {
        MimeData::Binary(bytes) => Some(bytes.into()),
        MimeData::Text(_) if image.mime_type == "image/svg+xml" => None,
        MimeData::Text(text) => STANDARD.decode(text).ok().map(Cow::Owned),
    }
}

/// Result of a look at the image of a display.
enum Look {
    Fits,
    /// It may be too large.
    Large(Vec<u8>),
}

fn look(bundle: &MimeBundle) -> Look {
    let Some(file) = bundle.image().and_then(file_of) else { return Look::Fits };
    let is_wide = || pictures::dimensions(&file).is_some_and(|(width, height)| width.max(height) > Fit::MODELS.side);
    if file.len() > Fit::MODELS.bytes || is_wide() { Look::Large(file.into_owned()) } else { Look::Fits }
}

impl RunResult {
    /// Makes the images fit that are larger than the interfaces of models take ([`Fit::MODELS`]): they become smaller ones, or a line
    /// that says that they were left out. Blocks while they are read; a result without such images costs nothing.
    pub fn fit_images(&mut self) {
        for cell in &mut self.cells {
            let mut unreadable = 0_u64;
            for display in &mut cell.displays {
                let Look::Large(file) = look(&display.bundle) else { continue };
                let kind =
                    |each: &(String, MimeData)| each.0.starts_with("image/") && each.0.as_str() != "image/svg+xml";
                let small = pictures::fit(&file, Fit::MODELS);
                let place = display.bundle.0.iter().position(kind);
                let Some(place) = place else { continue };
                display.bundle.0.remove(place);
                // Others in the same bundle show the same.
                display.bundle.0.retain(|each| !kind(each));
                match small {
                    Fitted::Smaller(Smaller { mime_type, bytes, .. }) => {
                        display.bundle.0.insert(place, (mime_type.to_owned(), MimeData::Binary(bytes)));
                        self.images_smaller = self.images_smaller.saturating_add(1);
                    }
                    Fitted::AsItIs | Fitted::Unreadable => unreadable = unreadable.saturating_add(1),
                }
                let bytes = display.bundle.weight_bytes();
                let all = self.used.display_bytes.bytes().saturating_sub(display.bytes).saturating_add(bytes);
                // Less is never refused.
                self.used.display_bytes.resize(all);
                display.bytes = bytes;
            }
            if unreadable > 0 {
                let note = format!("[{unreadable} image(s) left out: too large for models, and not to be read]");
                cell.text.push_lines(&note);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cellar_core::{
        cell::{Cell, Language},
        event::{Event, EventKind},
    };

    use super::*;

    #[test]
    fn images_of_a_result_fit() {
        let wide = |width: u32| {
            let mut file = std::io::Cursor::new(Vec::new());
            let image = image::DynamicImage::new_rgb8(width, 20);
            image.write_to(&mut file, image::ImageFormat::Png).expect("a picture");
            file.into_inner()
        };
        let mut result = RunResult::default();
        let cells = vec![Cell::new(Language::Python, "")];
        let mut kinds = vec![EventKind::RunStarted { session: String::new(), cells }];
        for data in [wide(100), wide(9_000), vec![0; Fit::MODELS.bytes + 1]] {
            let data = MimeBundle(vec![("image/png".to_owned(), MimeData::Binary(data))]);
            kinds.push(EventKind::Display { index: 0, data, display_id: None, is_value: false });
        }
        for (seq, kind) in (0..).zip(kinds) {
            result.apply(&Event { seq, kind });
        }
        result.fit_images();
        let sides: Vec<_> =
            result.images().filter_map(file_of).filter_map(|file| pictures::dimensions(&file)).collect();
        assert_eq!(sides, [(100, 20), (8_000, 17)]);
        assert_eq!(result.images_smaller, 1);
        assert!(result.text().contains("[1 image(s) left out"), "{}", result.text());
    }
}
