//! Values of headers that the host adds, so that a cell never sees them.

use std::{env, fmt};

/// The value of a header, with environment variables in it: `TOKEN`, or `Bearer ${TOKEN}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTemplate(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
}

impl HeaderTemplate {
    /// Parses a template: the name of a variable, or a text that contains `${NAME}`.
    ///
    /// # Errors
    /// The expectation that the text does not meet.
    pub fn parse(text: &str) -> Result<HeaderTemplate, &'static str> {
        if is_variable(text) {
            return Ok(HeaderTemplate(vec![Piece::Variable(text.to_owned())]));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, more)) = rest.split_once("${") {
            let (name, after) = more.split_once('}').ok_or("a `}` behind `${`")?;
            if !is_variable(name) {
                return Err("the name of an environment variable in `${…}`");
            }
            pieces.extend((!before.is_empty()).then(|| Piece::Text(before.to_owned())));
            pieces.push(Piece::Variable(name.to_owned()));
            rest = after;
        }
        if pieces.is_empty() {
            return Err("the name of an environment variable, or a text with `${NAME}` in it");
        }
        pieces.extend((!rest.is_empty()).then(|| Piece::Text(rest.to_owned())));
        Ok(HeaderTemplate(pieces))
    }

    /// Returns the value. Values of variables are treated as credentials from then on.
    ///
    /// # Errors
    /// The name of a variable that is not set, or is empty.
    pub(crate) fn fill(&self) -> Result<String, &str> {
        let mut value = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => value.push_str(text),
                Piece::Variable(name) => {
                    let found = env::var(name).ok().filter(|found| !found.is_empty()).ok_or(name.as_str())?;
                    cellar_secrets::learn(&found);
                    value.push_str(&found);
                }
            }
        }
        Ok(value)
    }
}

impl fmt::Display for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Variable(name) => write!(f, "${{{name}}}"),
        })
    }
}

fn is_variable(name: &str) -> bool {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable that every test has, in the place of a secret.
    const SET: &str = "CARGO_MANIFEST_DIR";

    fn fill(text: &str) -> Result<String, String> {
        Ok(HeaderTemplate::parse(text)?.fill()?)
    }

    #[test]
    fn variables_are_filled_in() {
        let secret = env!("CARGO_MANIFEST_DIR");
        assert_eq!(fill(SET), Ok(secret.to_owned()));
        assert_eq!(fill(&format!("a ${{{SET}}} b ${{{SET}}}")), Ok(format!("a {secret} b {secret}")));
        assert_eq!(cellar_secrets::hide(&format!("<{secret}>")), "<***>", "it is known from now on");
        assert_eq!(fill("Bearer ${CELLAR_NO_SUCH}"), Err("CELLAR_NO_SUCH".to_owned()));
    }

    #[test]
    fn a_value_without_a_variable_is_none() {
        for text in ["", "Bearer x", "${", "${}", "${A B}", "${A", "1A", "a-b"] {
            assert!(HeaderTemplate::parse(text).is_err(), "{text}");
        }
    }
}
