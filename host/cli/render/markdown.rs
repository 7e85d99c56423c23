//! Markdown on a terminal.

use termimad::{
    MadSkin,
    crossterm::style::{Attribute, Color},
};

use crate::terminal::{Look, escaped_lines};

/// Longer texts are shown as they are.
const BYTES_MAX: usize = 256 << 10;

/// `text`, laid out for a terminal of so many columns. `None` where it is to be shown as it is.
pub(crate) fn render(text: &str, look: Look, width: usize) -> Option<String> {
    if text.len() > BYTES_MAX {
        return None;
    }
    // The text is the cell's, and only the renderer may steer the terminal.
    let text = escaped_lines(text);
    let skin = if look.has_colors { skin() } else { MadSkin::no_style() };
    Some(skin.text(text.trim_end(), Some(width)).to_string())
}

/// The terminal's own colours, so that both light and dark ones can be read.
fn skin() -> MadSkin {
    let mut skin = MadSkin::no_style();
    for (level, header) in skin.headers.iter_mut().enumerate() {
        header.add_attr(Attribute::Bold);
        if level == 0 {
            header.add_attr(Attribute::Underlined);
        }
    }
    skin.bold.add_attr(Attribute::Bold);
    skin.italic.add_attr(Attribute::Italic);
    skin.strikeout.add_attr(Attribute::CrossedOut);
    skin.inline_code.set_fg(Color::Cyan);
    skin.code_block.set_fg(Color::Cyan);
    skin.quote_mark.set_fg(Color::DarkGrey);
    skin.bullet.set_fg(Color::Yellow);
    skin
}
