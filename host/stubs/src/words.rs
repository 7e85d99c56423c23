//! Names and descriptions, made safe to stand in code.

/// Characters of a description, and of the first line of one.
const WHOLE_CHARACTERS: usize = 600;
const FIRST_CHARACTERS: usize = 100;
/// Characters of a name.
const NAME_CHARACTERS: usize = 128;

/// Words that are no names in Python.
const KEYWORDS: [&str; 36] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "self",
];

/// Returns true for names that both languages take as identifiers.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= NAME_CHARACTERS
}

/// Returns true for names that a parameter or an attribute may have in a class of Python; others are changed there, or are
/// words of the language.
pub(crate) fn is_python_name(name: &str) -> bool {
    is_identifier(name) && !KEYWORDS.contains(&name) && !name.starts_with("__")
}

/// Returns the expression for a member: `of.name`, or `of["name"]` where the name is no identifier.
pub(crate) fn member(of: &str, name: &str) -> String {
    if is_identifier(name) && !KEYWORDS.contains(&name) {
        format!("{of}.{name}")
    } else {
        format!("{of}[{}]", quoted(name))
    }
}

/// Returns a text as a literal of both languages, in ASCII, so that nothing in it is taken for the end of a line.
pub(crate) fn quoted(text: &str) -> String {
    let mut made = String::from("\"");
    let mut units = [0; 2];
    for character in text.chars() {
        match character {
            '"' => made.push_str("\\\""),
            '\\' => made.push_str("\\\\"),
            ' '..='~' => made.push(character),
            // Beyond the first plane the languages write escapes in ways of their own.
            _ if character.len_utf16() > 1 => made.push(if is_hidden(character) { '?' } else { character }),
            _ => character.encode_utf16(&mut units).iter().for_each(|unit| made.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    made.push('"');
    made
}

/// Returns a name of a type for a name: `create_issue` becomes `CreateIssue`.
pub(crate) fn pascal(name: &str) -> String {
    let mut made = String::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut characters = part.chars();
        made.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        made.extend(characters);
    }
    let made: String = made.chars().take(NAME_CHARACTERS).collect();
    if made.starts_with(|c: char| c.is_ascii_alphabetic()) { made } else { format!("T{made}") }
}

/// Returns a method's name for a name that is no identifier.
pub(crate) fn method(name: &str) -> String {
    let made: String =
        name.chars().take(NAME_CHARACTERS).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let made = made.trim_start_matches('_');
    if is_python_name(made) { made.to_owned() } else { format!("f_{made}") }
}

/// Returns a description in one line, cut where it is long, without what moves text about.
pub(crate) fn whole(text: &str) -> String {
    cut(&plain(text), WHOLE_CHARACTERS)
}

/// Returns the beginning of the first line of a description.
pub(crate) fn first(text: &str) -> String {
    cut(&plain(text.trim_start().lines().next().unwrap_or_default()), FIRST_CHARACTERS)
}

/// Returns at most so many characters of a text.
pub(crate) fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

fn plain(text: &str) -> String {
    // Only so much is looked at, however long it is.
    let start = text.chars().take(WHOLE_CHARACTERS.saturating_mul(4));
    let visible = start.filter(|c| !is_hidden(*c)).map(|c| if c.is_control() { ' ' } else { c });
    visible.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true for characters that are not seen, or that change the order in which others are.
fn is_hidden(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text that ends no docstring.
pub(crate) fn in_docstring(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace("\"\"\"", "'''");
    if text.ends_with('"') { format!("{text} ") } else { text }
}

/// Returns a text that ends no comment of JavaScript.
pub(crate) fn in_comment(text: &str) -> String {
    text.replace("*/", "* /")
}
