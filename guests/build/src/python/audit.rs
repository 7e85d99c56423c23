//! A gate against colliding symbols.
//!
//! Everything is linked into one module. When two libraries define the same global symbol with different content, the
//! linker takes whichever it meets first, and says nothing when the other lies in an archive member it never pulls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use wasmparser::{KnownCustom, Linking, Parser, Payload, SymbolFlags, SymbolInfo};

use crate::inputs::sha256_hex;

/// Who defines a symbol: the object's name and the digest of its content.
type Definitions = BTreeMap<String, BTreeMap<String, String>>;

/// Reads all objects and archives.
///
/// # Errors
/// Names every symbol that objects with different content define.
pub(super) fn audit(files: &[PathBuf]) -> Result<()> {
    let mut definitions = Definitions::new();
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("could not read `{}`", file.display()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if bytes.starts_with(ARCHIVE_MAGIC) {
            for (member, content) in members(&bytes).with_context(|| format!("`{name}` is not a good archive"))? {
                note(&mut definitions, &format!("{name}({member})"), content)?;
            }
        } else {
            note(&mut definitions, &name, &bytes)?;
        }
    }
    let collisions: Vec<String> = definitions
        .iter()
        .filter(|(_, by_content)| by_content.len() > 1)
        .map(|(symbol, by_content)| {
            format!("`{symbol}` in {}", by_content.values().cloned().collect::<Vec<_>>().join(", "))
        })
        .collect();
    if !collisions.is_empty() {
        bail!("{} symbols are defined more than once:\n{}", collisions.len(), collisions.join("\n"));
    }
    Ok(())
}

/// Notes the symbols that an object defines for others.
fn note(definitions: &mut Definitions, name: &str, object: &[u8]) -> Result<()> {
    let digest = sha256_hex(object);
    for symbol in defined_symbols(object).with_context(|| format!("`{name}` is not a good object"))? {
        definitions.entry(symbol).or_default().insert(digest.clone(), name.to_owned());
    }
    Ok(())
}

/// Global, strong symbols with a definition.
fn defined_symbols(object: &[u8]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(object) {
        let Payload::CustomSection(section) = payload? else { continue };
        let KnownCustom::Linking(reader) = section.as_known() else { continue };
        for subsection in reader {
            let Linking::SymbolTable(symbols) = subsection? else { continue };
            for symbol in symbols {
                let (flags, name) = match symbol? {
                    SymbolInfo::Func { flags, name, .. }
                    | SymbolInfo::Global { flags, name, .. }
                    | SymbolInfo::Event { flags, name, .. }
                    | SymbolInfo::Table { flags, name, .. } => (flags, name),
                    SymbolInfo::Data { flags, name, .. } => (flags, Some(name)),
                    SymbolInfo::Section { .. } => continue,
                };
                let ignored = SymbolFlags::UNDEFINED | SymbolFlags::BINDING_LOCAL | SymbolFlags::BINDING_WEAK;
                if let (false, Some(name)) = (flags.intersects(ignored), name) {
                    found.push(name.to_owned());
                }
            }
        }
    }
    Ok(found)
}

const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;

/// The objects in an archive of the GNU kind, without its index.
fn members(archive: &[u8]) -> Result<Vec<(String, &[u8])>> {
    let mut found = Vec::new();
    let mut long_names: &[u8] = &[];
    let mut at = ARCHIVE_MAGIC.len();
    while at + HEADER_BYTES <= archive.len() {
        let header = &archive[at..at + HEADER_BYTES];
        let field = std::str::from_utf8(&header[..16])?.trim_end();
        let size: usize = std::str::from_utf8(&header[48..58])?.trim().parse()?;
        let start = at + HEADER_BYTES;
        let content = archive.get(start..start + size).context("a member is cut off")?;
        match field {
            "//" => long_names = content,
            "/" | "/SYM64/" => {}
            _ => found.push((member_name(field, long_names), content)),
        }
        at = start + size + size % 2;
    }
    Ok(found)
}

/// A name of up to 15 characters stands in the header, a longer one in a table that the header points into.
fn member_name(field: &str, long_names: &[u8]) -> String {
    let offset = field.strip_prefix('/').and_then(|digits| digits.parse::<usize>().ok());
    match offset.and_then(|offset| long_names.get(offset..)) {
        Some(rest) => {
            let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            Path::new(String::from_utf8_lossy(&rest[..end]).trim_end_matches('/')).display().to_string()
        }
        None => field.trim_end_matches('/').to_owned(),
    }
}
