//! Images in the terminal, where it can show them: the protocols of kitty, iTerm2 and sixel.

use std::{
    env,
    io::{self, Cursor, IsTerminal},
    sync::LazyLock,
};

use image::{ImageReader, Limits};
use viuer::Config;

/// Width and height of an image that is shown; others are files.
const SIDE_PIXELS_MAX: u32 = 8_192;
/// Memory that decoding may take.
const DECODED_BYTES_MAX: u64 = 256 << 20;
/// Columns that an image takes at most.
const COLUMNS_MAX: usize = 100;
/// Pixels of a column, about, so that small images are not blown up.
const COLUMN_PIXELS: u32 = 8;

/// Terminals that speak a protocol, by what they put into `TERM` or `TERM_PROGRAM`.
const KITTY: [&str; 3] = ["kitty", "ghostty", "wezterm"];
const SIXEL: [&str; 5] = ["sixel", "foot", "mlterm", "yaft", "contour"];

/// What the terminal can be sent. Told by its name alone: one that is asked and does not know the question never
/// answers.
static PROTOCOLS: LazyLock<Option<Config>> = LazyLock::new(|| {
    let names = ["TERM", "TERM_PROGRAM"].map(|name| env::var(name).unwrap_or_default().to_lowercase());
    let is_one_of = |known: &[&str]| known.iter().any(|known| names.iter().any(|name| name.contains(known)));
    // It answers what viuer asks it, if it can.
    let can_answer = io::stdin().is_terminal();
    let use_kitty = can_answer && is_one_of(&KITTY);
    let use_sixel = can_answer && is_one_of(&SIXEL);
    let use_iterm = viuer::is_iterm_supported();
    let config = Config { absolute_offset: false, use_kitty, use_iterm, use_sixel, ..Config::default() };
    (use_kitty || use_iterm || use_sixel).then_some(config)
});

/// Draws an image on standard output, where that is a terminal that can. Says whether it did.
pub(crate) fn draw(bytes: &[u8], width: usize) -> bool {
    PROTOCOLS.as_ref().is_some_and(|config| decode_and_draw(bytes, width, config).is_some())
}

fn decode_and_draw(bytes: &[u8], width: usize, config: &Config) -> Option<()> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_PIXELS_MAX);
    limits.max_image_height = Some(SIDE_PIXELS_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let image = reader.decode().ok()?;
    let columns = u32::try_from(width.min(COLUMNS_MAX)).ok()?.min(image.width().div_ceil(COLUMN_PIXELS)).max(1);
    viuer::print(&image, &Config { width: Some(columns), ..config.clone() }).ok().map(drop)
}
