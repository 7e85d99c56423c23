//! Whether a cell that is being typed goes on.

use cellar_engine::Language;

/// Whether Enter should begin another line: something is open, or a block has begun and no blank line ended it.
pub(crate) fn goes_on(code: &str, language: Language) -> bool {
    let scan = Scan::of(code, language);
    if scan.is_open {
        return true;
    }
    let last = code.rsplit('\n').next().unwrap_or_default();
    match language {
        // As Python's own prompt has it: a block ends with a blank line.
        Language::Python => {
            let has_block =
                code.trim_end().lines().count() > 1 && code.lines().any(|line| line.starts_with([' ', '\t']));
            let begins = scan.last == Some(':') || last.starts_with('@');
            code.trim_end().ends_with('\\') || begins || (has_block && !last.trim().is_empty())
        }
        _ => matches!(scan.last, Some('=' | ',' | '+' | '*' | '&' | '|' | '?' | '.' | '\\')) && !code.ends_with("\n\n"),
    }
}

/// What a source has come to at its end.
#[derive(Debug, Default)]
struct Scan {
    /// A bracket, a string over lines or a comment is open.
    is_open: bool,
    /// The last character that is neither blank nor in a comment.
    last: Option<char>,
}

impl Scan {
    fn of(code: &str, language: Language) -> Scan {
        let is_python = language == Language::Python;
        let mut rest = code;
        // The brackets that are open; `${` in a template counts as one.
        let mut open: Vec<char> = Vec::new();
        let mut last = None;
        while let Some(character) = rest.chars().next() {
            let comment = if is_python { "#" } else { "//" };
            if rest.starts_with(comment) {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            }
            if !is_python && rest.starts_with("/*") {
                let Some(end) = rest.find("*/") else { return Scan { is_open: true, last } };
                rest = &rest[end + 2..];
                continue;
            }
            let delimiter = match character {
                '"' | '\'' if is_python => ["\"\"\"", "'''"].into_iter().find(|triple| rest.starts_with(triple)),
                _ => None,
            };
            let delimiter = delimiter.or(match character {
                '"' => Some("\""),
                '\'' => Some("'"),
                '`' if !is_python => Some("`"),
                '/' if !is_python && is_pattern_place(last) => Some("/"),
                _ => None,
            });
            if let Some(delimiter) = delimiter {
                last = Some(character);
                match end_of_string(&rest[delimiter.len()..], delimiter, delimiter.len() == 3 || delimiter == "`") {
                    Some(end) => rest = &rest[delimiter.len() + end..],
                    None => return Scan { is_open: true, last },
                }
                continue;
            }
            match character {
                '(' | '[' | '{' => open.push(character),
                ')' | ']' | '}' => drop(open.pop()),
                _ => {}
            }
            if !character.is_whitespace() {
                last = Some(character);
            }
            rest = &rest[character.len_utf8()..];
        }
        Scan { is_open: !open.is_empty(), last }
    }
}

/// Whether a slash begins a pattern, and does not divide.
fn is_pattern_place(last: Option<char>) -> bool {
    last.is_none_or(|last| "(,=:[!&|?{};+-*%<>~^".contains(last))
}

/// Where a string ends. One that may not go on over its line ends with it: the language will say what is wrong.
fn end_of_string(text: &str, delimiter: &str, over_lines: bool) -> Option<usize> {
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if text[place..].starts_with(delimiter) {
            return Some(place + delimiter.len());
        } else if character == '\n' && !over_lines {
            return Some(place);
        }
    }
    (!over_lines).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_goes_on_until_its_block_ends() {
        for code in ["def f():", "if x:\n    y", "f(1,", "\"\"\"a", "[{", "x = \\", "@cache", "class A:  # note"] {
            assert!(goes_on(code, Language::Python), "{code:?}");
        }
        for code in
            ["1 + 1", "x = '('", "# (", "def f():\n    return 1\n", "f()", "if x: y", "'unclosed", ")", "f\"{x}\""]
        {
            assert!(!goes_on(code, Language::Python), "{code:?}");
        }
    }

    #[test]
    fn javascript_goes_on_while_something_is_open() {
        for code in ["function f() {", "`a", "/* a", "x =>{", "const x =", "[1,", "f(`${a", "a ||"] {
            assert!(goes_on(code, Language::JavaScript), "{code:?}");
        }
        for code in
            ["1 + 1", "'('", "// (", "x = /[(]/.test('a')", "a / b / c", "`${a}`", "f({})", "}", "const x =\n\n"]
        {
            assert!(!goes_on(code, Language::JavaScript), "{code:?}");
        }
    }
}
