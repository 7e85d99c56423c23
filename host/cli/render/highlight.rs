//! Source in colours: Sublime's grammars, and the sixteen colours of the reader's own terminal.

use std::sync::LazyLock;

use anstyle::{AnsiColor, Style};
use cellar_engine::Language;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

/// Longer lines are shown as they are: minified source has nothing to gain, and grammars are slow on it.
const LINE_BYTES_MAX: usize = 1_000;

static GRAMMARS: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);

/// Styles of scopes, the most specific first. `None` ends the search: what is inside a string's braces is code.
static STYLES: LazyLock<Vec<(Scope, Option<Style>)>> = LazyLock::new(|| {
    let color = |color: AnsiColor| Some(color.on_default());
    let styles = [
        ("comment", Some(AnsiColor::BrightBlack.on_default())),
        ("meta.interpolation", None),
        ("meta.template.expression", None),
        ("string", color(AnsiColor::Green)),
        ("constant", color(AnsiColor::Cyan)),
        ("keyword.operator", None),
        ("keyword", color(AnsiColor::Magenta)),
        ("storage", color(AnsiColor::Magenta)),
        ("entity.name.function", color(AnsiColor::Blue)),
        ("entity.name.class", color(AnsiColor::Yellow)),
        ("support.function", color(AnsiColor::Blue)),
        ("variable.function", color(AnsiColor::Blue)),
        ("support.type", color(AnsiColor::Yellow)),
        ("variable.language", color(AnsiColor::Red)),
    ];
    styles.into_iter().filter_map(|(name, style)| Some((Scope::new(name).ok()?, style))).collect()
});

/// Colours the lines of one source, in order.
#[derive(Debug)]
pub(crate) struct Highlighter {
    parser: ParseState,
    scopes: ScopeStack,
}

impl Highlighter {
    /// `None` for a language without a grammar.
    pub(crate) fn new(language: Language) -> Option<Highlighter> {
        let grammar = GRAMMARS.find_syntax_by_token(language.code())?;
        Some(Highlighter { parser: ParseState::new(grammar), scopes: ScopeStack::new() })
    }

    /// The parts of the next line, each with its style. Together they are the line.
    pub(crate) fn parts<'a>(&mut self, line: &'a str) -> Vec<(Style, &'a str)> {
        if line.len() > LINE_BYTES_MAX {
            return vec![(Style::new(), line)];
        }
        // The grammars want the line's end.
        let Ok(changes) = self.parser.parse_line(&format!("{}\n", line.trim_end_matches('\n')), &GRAMMARS) else {
            return vec![(Style::new(), line)];
        };
        // Where parts begin, each with its style.
        let mut starts = vec![(0, self.style())];
        for (start, change) in changes {
            // A grammar that contradicts itself costs colours, no more.
            let _ = self.scopes.apply(&change);
            starts.retain(|(other, _)| *other < start);
            let style = self.style();
            if start < line.len() && starts.last().is_none_or(|(_, last)| *last != style) {
                starts.push((start, style));
            }
        }
        let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([line.len()]);
        starts
            .iter()
            .zip(ends)
            .map(|((start, style), end)| (*style, line.get(*start..end).unwrap_or_default()))
            .collect()
    }

    /// The next line, painted.
    pub(crate) fn paint(&mut self, line: &str) -> String {
        let paint = |(style, part): (Style, &str)| format!("{style}{part}{style:#}");
        self.parts(line).into_iter().map(paint).collect()
    }

    fn style(&self) -> Style {
        let known =
            |scope: &Scope| STYLES.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope)).map(|(_, style)| *style);
        self.scopes.as_slice().iter().rev().find_map(known).flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(language: Language, line: &str) -> Vec<(Style, &str)> {
        Highlighter::new(language).expect("a grammar").parts(line)
    }

    fn style_of(parts: &[(Style, &str)], text: &str) -> Style {
        parts.iter().find(|(_, part)| part.contains(text)).expect(text).0
    }

    #[test]
    fn words_of_both_languages_have_their_colours() {
        let line = "def area(r): return 3.14 * r  # of a circle";
        let found = parts(Language::Python, line);
        assert_eq!(found.iter().map(|(_, part)| *part).collect::<String>(), line);
        assert_eq!(style_of(&found, "return"), AnsiColor::Magenta.on_default());
        assert_eq!(style_of(&found, "area"), AnsiColor::Blue.on_default());
        assert_eq!(style_of(&found, "3"), AnsiColor::Cyan.on_default());
        assert_eq!(style_of(&found, "circle"), AnsiColor::BrightBlack.on_default());
        let found = parts(Language::JavaScript, "const name = \"x\";");
        assert_eq!(style_of(&found, "const"), AnsiColor::Magenta.on_default());
        assert_eq!(style_of(&found, "x"), AnsiColor::Green.on_default());
    }

    #[test]
    fn a_string_over_several_lines_stays_one() {
        let mut highlighter = Highlighter::new(Language::Python).expect("a grammar");
        highlighter.parts("text = \"\"\"one");
        assert_eq!(style_of(&highlighter.parts("import two"), "import"), AnsiColor::Green.on_default());
        highlighter.parts("\"\"\"");
        assert_eq!(style_of(&highlighter.parts("import three"), "import"), AnsiColor::Magenta.on_default());
    }

    #[test]
    fn odd_lines_come_back_whole() {
        let long = "x".repeat(5_000);
        for line in ["", "ü🦀 = '", "\u{0}", long.as_str(), "`${`${`"] {
            for language in [Language::Python, Language::JavaScript] {
                assert_eq!(parts(language, line).iter().map(|(_, part)| *part).collect::<String>(), line);
            }
        }
    }
}
