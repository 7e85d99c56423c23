//! Pictures made to fit: no larger than what takes them allows, in bytes, in pixels of a side, and in all.
//!
//! The files are those of strangers, so each is read with bounded memory, and one at a time in a process.

use std::{
    io::Cursor,
    sync::{Mutex, PoisonError},
};

use image::{
    DynamicImage, ImageBuffer, ImageFormat, ImageReader, Limits, Rgb, codecs::jpeg::JpegEncoder, imageops::FilterType,
};

/// Memory that reading a picture may take, in bytes.
const DECODE_BYTES_MAX: u64 = 256 << 20;
/// Quality of a JPEG that stands for a picture that is too large as PNG.
const JPEG_QUALITY: u8 = 85;
/// Attempts to make a picture small enough.
const ATTEMPTS_MAX: usize = 12;
/// Pixels of a picture up to which the largest size that fits is looked for.
const REFINED_PIXELS_MAX: u64 = 1 << 20;
/// Smallest side, in pixels, to which a picture is scaled.
const SIDE_MIN: u32 = 16;

/// One picture is read at a time.
static READING: Mutex<()> = Mutex::new(());

/// Size that a picture may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bytes of its file.
    pub bytes: usize,
    /// Pixels of its longer side.
    pub side: u32,
    /// Pixels in all.
    pub pixels: u64,
}

impl Fit {
    /// Size that the interfaces of models take: 5 MB as base64, and 8,000 pixels a side.
    pub const MODELS: Fit = Fit { bytes: 3_750_000, side: 8_000, pixels: u64::MAX };

    fn takes(&self, (width, height): (u32, u32)) -> bool {
        width.max(height) <= self.side && u64::from(width).saturating_mul(u64::from(height)) <= self.pixels
    }

    /// Returns the largest size of the same shape that fits.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sides of pictures, made smaller"
    )]
    fn scaled(&self, (width, height): (u32, u32), factor: f64) -> (u32, u32) {
        let longer = f64::from(width.max(height));
        let by_side = f64::from(self.side) / longer;
        let by_pixels = (self.pixels as f64 / (f64::from(width) * f64::from(height))).sqrt();
        let factor = by_side.min(by_pixels).min(1.0) * factor;
        let side = |side: u32| ((f64::from(side) * factor) as u32).clamp(1, side.max(1));
        (side(width), side(height))
    }
}

/// A picture that was to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitted {
    /// It fits as it is.
    AsItIs,
    /// It was made smaller.
    Smaller(Smaller),
    /// It cannot be read.
    Unreadable,
}

/// A picture that was made smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smaller {
    /// `image/png` or `image/jpeg`.
    pub mime_type: &'static str,
    /// Its file.
    pub bytes: Vec<u8>,
    /// Width and height before, in pixels.
    pub from: (u32, u32),
    /// Width and height now.
    pub to: (u32, u32),
}

/// Returns the width and the height of a picture, in pixels, as its file says; `None` for a file that is no picture.
pub fn dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?.into_dimensions().ok()
}

/// Makes a picture fit. Blocks while it is read and written.
pub fn fit(bytes: &[u8], fit: Fit) -> Fitted {
    match dimensions(bytes) {
        Some(size) if bytes.len() <= fit.bytes && fit.takes(size) => Fitted::AsItIs,
        Some(_) => made_smaller(bytes, fit).map_or(Fitted::Unreadable, Fitted::Smaller),
        None => Fitted::Unreadable,
    }
}

fn made_smaller(bytes: &[u8], fit: Fit) -> Option<Smaller> {
    let _turn = READING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODE_BYTES_MAX);
    reader.limits(limits);
    let whole = reader.decode().ok()?;
    let from = (whole.width(), whole.height());
    // Of the factors that were tried, the largest that fits, with its file, and the smallest that does not.
    let (mut best, mut too_large): (Option<(f64, Smaller)>, f64) = (None, f64::INFINITY);
    let mut factor = 1.0;
    // Pixels from which a picture is not worth the time of PNG: one that is as it was, or larger than one that was too large.
    let is_png = image::guess_format(bytes).is_ok_and(|format| format == ImageFormat::Png);
    let mut png_pixels = if is_png && bytes.len() > fit.bytes { pixels(from) } else { u64::MAX };
    for attempt in 0..ATTEMPTS_MAX {
        let to = fit.scaled(from, factor);
        let image = if to == from { whole.clone() } else { whole.resize_exact(to.0, to.1, FilterType::Triangle) };
        let tries_png = pixels(to) < png_pixels;
        match smallest(image, fit.bytes, tries_png) {
            Ok((mime_type, bytes)) => {
                let is_near = bytes.len() >= (fit.bytes / 4).saturating_mul(3) || factor >= 1.0;
                let is_slow = pixels(to) > REFINED_PIXELS_MAX;
                best = Some((factor, Smaller { mime_type, bytes, from, to }));
                if is_near || is_slow || too_large.is_infinite() || attempt >= ATTEMPTS_MAX / 2 {
                    break;
                }
                factor = (factor + too_large) / 2.0;
            }
            Err((length, png_length)) if to.0.max(to.1) > SIDE_MIN && length < usize::MAX => {
                too_large = factor;
                if png_length > 0 {
                    // A file has about as many bytes as the picture has pixels.
                    let fits = u128::from(pixels(to)).saturating_mul(fit.bytes as u128);
                    let fits = fits.checked_div(png_length as u128).unwrap_or(0).saturating_mul(5) / 4;
                    png_pixels = png_pixels.min(u64::try_from(fits).unwrap_or(u64::MAX));
                }
                factor = match &best {
                    Some((fits, _)) if attempt < ATTEMPTS_MAX / 2 => (fits + too_large) / 2.0,
                    Some(_) => break,
                    None => factor * shrunk(fit.bytes, length),
                };
            }
            Err(_) => break,
        }
    }
    best.map(|(_, smaller)| smaller)
}

fn pixels((width, height): (u32, u32)) -> u64 {
    u64::from(width).saturating_mul(u64::from(height))
}

/// Returns the file of a picture, as PNG if that is tried and small enough, else as JPEG, with its type.
///
/// # Errors
/// Neither is small enough: the bytes of the smaller one, and of that as PNG, or 0.
fn smallest(image: DynamicImage, bytes_max: usize, tries_png: bool) -> Result<(&'static str, Vec<u8>), (usize, usize)> {
    let png = if tries_png { png(&image).unwrap_or_default() } else { Vec::new() };
    if (1..=bytes_max).contains(&png.len()) {
        return Ok(("image/png", png));
    }
    let jpeg = jpeg(image).unwrap_or_default();
    if (1..=bytes_max).contains(&jpeg.len()) {
        return Ok(("image/jpeg", jpeg));
    }
    let least = [png.len(), jpeg.len()].into_iter().filter(|length| *length > 0).min().unwrap_or(usize::MAX);
    Err((least, png.len()))
}

/// Returns the factor by which the sides of a picture shrink whose file has too many bytes.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn shrunk(most: usize, length: usize) -> f64 {
    ((most as f64 / length as f64).sqrt() * 0.95).clamp(0.1, 0.95)
}

fn png(image: &DynamicImage) -> Option<Vec<u8>> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, ImageFormat::Png).ok()?;
    Some(file.into_inner())
}

/// The same as JPEG, which has no transparency: white shines through.
fn jpeg(image: DynamicImage) -> Option<Vec<u8>> {
    let rgb = match image.color().has_alpha() {
        false => image.into_rgb8(),
        true => {
            let image = image.into_rgba8();
            let over_white = |value: u8, alpha: u8| {
                let (value, alpha) = (u16::from(value), u16::from(alpha));
                let mixed =
                    value.saturating_mul(alpha).saturating_add(255_u16.saturating_mul(255_u16.saturating_sub(alpha)));
                u8::try_from(mixed / 255).unwrap_or(u8::MAX)
            };
            ImageBuffer::from_fn(image.width(), image.height(), |x, y| {
                let [red, green, blue, alpha] = image.get_pixel(x, y).0;
                Rgb([red, green, blue].map(|value| over_white(value, alpha)))
            })
        }
    };
    let mut file = Vec::new();
    rgb.write_with_encoder(JpegEncoder::new_with_quality(&mut file, JPEG_QUALITY)).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture that no file format makes small.
    fn noise(width: u32, height: u32) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let image = ImageBuffer::from_fn(width, height, |_, _| Rgb([next(), next(), next()]));
        png(&DynamicImage::ImageRgb8(image)).expect("a picture")
    }

    fn blank(width: u32, height: u32) -> Vec<u8> {
        png(&DynamicImage::new_rgba8(width, height)).expect("a picture")
    }

    fn smaller(bytes: &[u8], most: Fit) -> Smaller {
        match fit(bytes, most) {
            Fitted::Smaller(smaller) => {
                assert!(smaller.bytes.len() <= most.bytes, "{} bytes", smaller.bytes.len());
                assert_eq!(dimensions(&smaller.bytes), Some(smaller.to));
                smaller
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pictures_are_made_as_small_as_they_must_be() {
        let most = Fit { bytes: 100_000, side: 1_000, pixels: 400_000 };
        assert_eq!(fit(&blank(1_000, 400), most), Fitted::AsItIs);
        assert_eq!(smaller(&blank(4_000, 100), most).to, (1_000, 25));
        assert_eq!(smaller(&blank(10, 9_000), most).to, (1, 1_000));
        assert_eq!(smaller(&blank(900, 900), most).to, (632, 632));
        // As PNG it is too large at its own size, and is not made larger.
        let photograph = smaller(&noise(300, 300), most);
        assert_eq!((photograph.mime_type, photograph.from), ("image/jpeg", (300, 300)));
        assert!(smaller(&noise(900, 400), most).to.0 < 900);
    }

    #[test]
    fn what_is_no_picture_or_would_take_too_much_memory_is_not_read() {
        assert_eq!(fit(b"GIF89a, or so", Fit::MODELS), Fitted::Unreadable);
        assert_eq!(fit(&blank(20_000, 4_000), Fit::MODELS), Fitted::Unreadable);
    }
}
