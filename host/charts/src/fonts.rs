//! Fonts of this machine, and those that came with the guest, for scripts that a machine often has no font of: PNGs are drawn with them, and Vega uses the widths of their characters for the layout of charts.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use resvg::usvg::{
    FontResolver,
    fontdb::{Database, Family, ID, Query, Weight},
};
use serde_json::{Map, Value, json};
use skrifa::{
    FontRef, MetadataProvider,
    instance::{LocationRef, Size},
};

/// Sans-serif families in order of preference: those with the metrics of Arial, which browsers use, come first.
const SANS: [&str; 8] =
    ["Liberation Sans", "Arimo", "Arial", "Helvetica", "DejaVu Sans", "Noto Sans", "Open Sans", "Roboto"];
const SERIF: [&str; 6] = ["Liberation Serif", "Tinos", "Times New Roman", "Times", "DejaVu Serif", "Noto Serif"];
const MONOSPACE: [&str; 6] =
    ["Liberation Mono", "Cousine", "Courier New", "Courier", "DejaVu Sans Mono", "Noto Sans Mono"];

/// Characters whose widths are passed to the guest: Latin, Greek and Cyrillic, and punctuation.
const MEASURED: [std::ops::RangeInclusive<char>; 3] =
    ['\u{20}'..='\u{52f}', '\u{2010}'..='\u{203a}', '\u{2190}'..='\u{2265}'];
/// Width of other characters, in thousandths of the font size: most of them are Chinese, Japanese and Korean.
const OTHER_WIDTH: u64 = 1000;
/// Maximum number of characters of one chart for which a font is searched because the chosen one lacks them. Each search
/// reads all fonts.
const SEARCHES_MAX: usize = 256;

/// Folder of the guest's own fonts, below that of the guest.
const FOLDER: &str = "fonts";

/// Fonts of this machine and of the guest.
#[derive(Debug)]
pub(crate) struct Fonts {
    database: Arc<Database>,
    /// Default family, for texts that name none or a missing one. Absent when there is no font.
    family: Option<String>,
    /// See [`Fonts::widths`].
    widths: String,
}

impl Fonts {
    /// Loads the fonts of the system, and then those of the guest in this folder, if there are any.
    pub(crate) fn load(guest: Option<&Path>) -> Fonts {
        let mut database = Database::new();
        database.load_system_fonts();
        if let Some(guest) = guest {
            database.load_fonts_dir(guest.join(FOLDER));
        }
        Fonts::of(database)
    }

    fn of(mut database: Database) -> Fonts {
        let family = first(&database, &SANS).or_else(|| Some(database.faces().next()?.families.first()?.0.clone()));
        if let Some(family) = &family {
            database.set_sans_serif_family(family);
            database.set_serif_family(first(&database, &SERIF).unwrap_or_else(|| family.clone()));
            database.set_monospace_family(first(&database, &MONOSPACE).unwrap_or_else(|| family.clone()));
        }
        let widths = [("regular", Weight::NORMAL), ("bold", Weight::BOLD)].map(|(name, weight)| {
            let found = database.query(&Query { families: &[Family::SansSerif], weight, ..Query::default() });
            (name.to_owned(), found.and_then(|id| widths(&database, id)).unwrap_or_default().into())
        });
        let mut table: Map<String, Value> = widths.into_iter().collect();
        table.insert("other".to_owned(), OTHER_WIDTH.into());
        Fonts { database: Arc::new(database), family, widths: Value::Object(table).to_string() }
    }

    /// A JSON text: the widths of characters in thousandths of the font's size, `regular` and `bold`, and of all others.
    pub(crate) fn widths(&self) -> &str {
        &self.widths
    }

    /// All of them.
    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Returns the default family.
    pub(crate) fn family(&self) -> Option<&str> {
        self.family.as_deref()
    }
}

/// Chooses fonts for one chart. Each character is looked for once, and not many are.
pub(crate) fn resolver() -> FontResolver<'static> {
    let search = FontResolver::default_fallback_selector();
    let found: Mutex<HashMap<char, Option<ID>>> = Mutex::default();
    FontResolver {
        select_font: FontResolver::default_font_selector(),
        select_fallback: Box::new(move |character, used, database| {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = found.get(&character) {
                return known.filter(|id| !used.contains(id));
            }
            if found.len() == SEARCHES_MAX {
                return None;
            }
            let font = search(character, used, database);
            found.insert(character, font);
            font
        }),
    }
}

/// Returns the first of these families that is installed.
fn first(database: &Database, families: &[&str]) -> Option<String> {
    let is_here = |name: &&&str| database.faces().any(|face| face.families.iter().any(|(family, _)| family == **name));
    families.iter().find(is_here).map(|name| (*name).to_owned())
}

/// Returns the widths of the measured characters that a font has.
fn widths(database: &Database, id: ID) -> Option<Map<String, Value>> {
    database.with_face_data(id, |data, index| {
        let font = FontRef::from_index(data, index).ok()?;
        let units = f32::from(font.metrics(Size::unscaled(), LocationRef::default()).units_per_em);
        let (characters, glyphs) = (font.charmap(), font.glyph_metrics(Size::unscaled(), LocationRef::default()));
        let width = |character: char| {
            let width = glyphs.advance_width(characters.map(character)?)?;
            Some((character.to_string(), json!((width * 1000.0 / units).round())))
        };
        Some(MEASURED.into_iter().flatten().filter_map(width).collect())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_fonts_has_no_family_and_no_widths() {
        let fonts = Fonts::of(Database::new());
        assert_eq!(fonts.family(), None);
        assert_eq!(fonts.widths(), r#"{"regular":{},"bold":{},"other":1000}"#);
    }

    #[test]
    fn characters_of_a_font_have_widths() {
        let fonts = Fonts::load(None);
        let widths: Value = serde_json::from_str(fonts.widths()).expect("widths are JSON");
        let of = |style: &str, character: &str| widths[style][character].as_f64().expect("a width");
        // In any font without serifs.
        assert!(of("regular", "i") < of("regular", "m") && of("regular", "m") < 1100.0, "{}", fonts.widths());
        assert!(of("bold", "a") >= of("regular", "a"));
        assert_eq!(widths["regular"]["界"], Value::Null);
    }
}
