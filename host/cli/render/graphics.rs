//! Images in the terminal, where it can show them: the protocols of kitty, of iTerm2, and sixel.

use std::{env, fmt::Write as _, io::Cursor, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use icy_sixel::{DiffusionMethod, MethodForLargest, MethodForRep, PixelFormat, Quality, sixel_string};
use image::{DynamicImage, ImageFormat, ImageReader, Limits, imageops::FilterType};

use crate::terminal::write_stdout;

/// Width and height of an image that is shown; others are files.
const SIDE_PIXELS_MAX: u32 = 8_192;
/// Memory that decoding may take.
const DECODED_BYTES_MAX: u64 = 256 << 20;
/// Columns that an image takes at most.
const COLUMNS_MAX: usize = 100;
/// Pixels of a column, about, so that small images are not blown up.
const COLUMN_PIXELS: u32 = 8;
/// Characters of base64 in one sequence of kitty's protocol.
const KITTY_CHUNK: usize = 4_096;

/// Graphics protocol of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// <https://sw.kovidgoyal.net/kitty/graphics-protocol/>
    Kitty,
    /// <https://iterm2.com/documentation-images.html>
    Iterm,
    /// <https://vt100.net/docs/vt3xx-gp/chapter14.html>
    Sixel,
}

/// Terminals that speak a protocol, by what they put into `TERM`, `TERM_PROGRAM` or `LC_TERMINAL`.
const KNOWN: [(&str, Protocol); 12] = [
    ("kitty", Protocol::Kitty),
    ("ghostty", Protocol::Kitty),
    ("iterm", Protocol::Iterm),
    ("wezterm", Protocol::Iterm),
    ("mintty", Protocol::Iterm),
    ("rio", Protocol::Iterm),
    ("warpterminal", Protocol::Iterm),
    ("sixel", Protocol::Sixel),
    ("foot", Protocol::Sixel),
    ("mlterm", Protocol::Sixel),
    ("yaft", Protocol::Sixel),
    ("contour", Protocol::Sixel),
];

/// The terminal's protocol. Told by its name alone: one that is asked and does not know the question never answers.
static PROTOCOL: LazyLock<Option<Protocol>> = LazyLock::new(|| {
    let names = ["TERM", "TERM_PROGRAM", "LC_TERMINAL"].map(|name| env::var(name).unwrap_or_default().to_lowercase());
    let is_named = |known: &&(&str, Protocol)| names.iter().any(|name| name.contains(known.0));
    KNOWN.iter().find(is_named).map(|(_, protocol)| *protocol)
});

/// Draws an image on standard output, where that is a terminal that can. Says whether it did.
pub(crate) fn draw(bytes: &[u8], width: usize) -> bool {
    let Some(sequence) = PROTOCOL.and_then(|protocol| sequence(bytes, width, protocol)) else { return false };
    write_stdout(sequence.as_bytes()).is_ok()
}

/// Returns the sequence that draws an image in a terminal of so many columns, and a line end. Returns `None` if the
/// image cannot be decoded.
fn sequence(bytes: &[u8], width: usize, protocol: Protocol) -> Option<String> {
    let image = decode(bytes)?;
    let columns = u32::try_from(width.min(COLUMNS_MAX)).ok()?.min(image.width().div_ceil(COLUMN_PIXELS)).max(1);
    match protocol {
        Protocol::Kitty => Some(kitty(&STANDARD.encode(png(&image)?), columns)),
        Protocol::Iterm => {
            let png = png(&image)?;
            let (size, data) = (png.len(), STANDARD.encode(&png));
            Some(format!("\u{1b}]1337;File=inline=1;preserveAspectRatio=1;size={size};width={columns}:{data}\u{7}\n"))
        }
        Protocol::Sixel => {
            let shown =
                image.resize(columns.saturating_mul(COLUMN_PIXELS), SIDE_PIXELS_MAX, FilterType::Triangle).to_rgba8();
            let (width, height) = (i32::try_from(shown.width()).ok()?, i32::try_from(shown.height()).ok()?);
            let quality = (DiffusionMethod::Auto, MethodForLargest::Auto, MethodForRep::Auto);
            let format = PixelFormat::RGBA8888;
            let drawn =
                sixel_string(shown.as_raw(), width, height, format, quality.0, quality.1, quality.2, Quality::AUTO);
            drawn.ok().map(|drawn| format!("{drawn}\n"))
        }
    }
}

fn decode(bytes: &[u8]) -> Option<DynamicImage> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_PIXELS_MAX);
    limits.max_image_height = Some(SIDE_PIXELS_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    reader.decode().ok()
}

fn png(image: &DynamicImage) -> Option<Vec<u8>> {
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png).ok()?;
    Some(png.into_inner())
}

/// A PNG as kitty takes it: in pieces, each of which says whether there are more. It is not to answer.
fn kitty(data: &str, columns: u32) -> String {
    let mut sequence = String::with_capacity(
        data.len().saturating_add((data.len() / KITTY_CHUNK).saturating_mul(16)).saturating_add(64),
    );
    let count = data.len().div_ceil(KITTY_CHUNK);
    for number in 0..count {
        let start = number.saturating_mul(KITTY_CHUNK);
        let piece = &data[start..data.len().min(start.saturating_add(KITTY_CHUNK))];
        let first = if number == 0 { format!("a=T,f=100,q=2,c={columns},") } else { String::new() };
        let more = u8::from(number.saturating_add(1) < count);
        // Writing to a string does not fail.
        let _ = write!(sequence, "\u{1b}_G{first}m={more};{piece}\u{1b}\\");
    }
    sequence.push('\n');
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(side: u32) -> Vec<u8> {
        let pixel = |x: u32, y: u32| image::Rgb([(x * 31 + y * 17) as u8, (x * y) as u8, (x ^ y) as u8]);
        png(&DynamicImage::ImageRgb8(image::RgbImage::from_fn(side, side, pixel))).expect("a PNG")
    }

    #[test]
    fn each_protocol_gets_the_image() {
        let image = noise(200);
        let kitty = sequence(&image, 80, Protocol::Kitty).expect("drawn");
        assert!(
            kitty.starts_with("\u{1b}_Ga=T,f=100,q=2,c=25,m=1;") && kitty.ends_with("\u{1b}\\\n"),
            "{}",
            &kitty[..60]
        );
        assert_eq!(kitty.matches("m=0;").count(), 1);
        let pieces = kitty.trim_end().split("\u{1b}\\").filter_map(|piece| piece.split_once(';'));
        let data: String = pieces.map(|(_, data)| data).collect();
        assert_eq!(decode(&STANDARD.decode(data).expect("base64")).expect("an image").width(), 200);
        let iterm = sequence(&image, 10, Protocol::Iterm).expect("drawn");
        assert!(iterm.contains(";width=10:") && iterm.ends_with("\u{7}\n"));
        assert!(sequence(&image, 80, Protocol::Sixel).expect("drawn").starts_with("\u{1b}P"));
    }

    #[test]
    fn what_is_no_image_is_not_drawn() {
        for bytes in [&b""[..], b"\x89PNG\r\n\x1a\n", b"<svg/>", &noise(20)[..60]] {
            assert_eq!(sequence(bytes, 80, Protocol::Kitty), None);
        }
    }
}
