//! Typed signatures of tools, primitives and fetches for models, made from their JSON Schemas, and a search over them.
//!
//! A [`Catalog`] has the [`Function`]s of a session. [`Catalog::stubs`] writes all of them as a `.pyi` or a `.d.ts`;
//! [`Catalog::description`] does where they are few, and says how to search where they are many. Schemas and descriptions come
//! from strangers: what is read of them is bounded, and no description ends the comment that it stands in.

// Strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod javascript;
mod python;
mod schema;
mod search;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use std::fmt::Write as _;

use cellar_core::{cell::Language, text::nearest};

use schema::Shape;

/// Functions from which on a description says how to search instead of naming all of them.
pub const SEARCHED_FROM: usize = 20;
/// Lines that a search gives unless it says how many, and at most.
pub const LINES: usize = 8;
const LINES_MAX: usize = 50;
/// Characters of a signature in one line.
const LINE_CHARACTERS: usize = 400;
/// Packs and connectors that a description names; of more, the first.
const GROUPS_MAX: usize = 20;

/// Source of a function, which says how cells call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// `tool.NAME(…)`
    Tool,
    /// `runtime.PACK.NAME(…)`; the name may have dots.
    Pack(String),
    /// `CONNECTOR.NAME(…)`
    Connector(String),
}

/// A function that cells call and the host answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its source.
    pub group: Group,
    /// Its name within the group.
    pub name: String,
    /// Description for people and models.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub schema: Option<String>,
    /// JSON Schema of its result.
    pub result: Option<String>,
    /// Columns of its rows with their types.
    pub columns: Vec<(String, String)>,
    /// True for what every session has: it is found and described, but not listed.
    pub is_usual: bool,
}

impl Function {
    /// The name with that of the pack or the connector.
    pub fn qualified(&self) -> String {
        match &self.group {
            Group::Tool => self.name.clone(),
            Group::Pack(of) | Group::Connector(of) => format!("{of}.{}", self.name),
        }
    }

    /// Returns the expression by which cells reach it.
    fn path(&self) -> String {
        match &self.group {
            Group::Tool => words::member("tool", &self.name),
            Group::Pack(of) => {
                let pack = words::member("runtime", of);
                self.name.split('.').fold(pack, |path, name| words::member(&path, name))
            }
            Group::Connector(of) => words::member(of, &self.name),
        }
    }

    /// Returns true if `name` means this function: its name, with or without that of its group, and of where groups are.
    fn is_named(&self, name: &str) -> bool {
        let qualified = self.qualified();
        let bare = match self.group {
            Group::Tool => name.strip_prefix("tool."),
            Group::Pack(_) => name.strip_prefix("runtime."),
            Group::Connector(_) => name.strip_prefix("connectors."),
        };
        name == qualified || bare == Some(&qualified) || name == self.path()
    }

    /// Returns its signature in one line, with the beginning of its description.
    pub fn line(&self, language: Language) -> String {
        let (signature, comment) = match language {
            Language::JavaScript => (javascript::line(self), "//"),
            _ => (python::line(self), "#"),
        };
        let signature = words::cut(&signature, LINE_CHARACTERS);
        match words::first(&self.description) {
            said if said.is_empty() => signature,
            said => format!("{signature}  {comment} {said}"),
        }
    }

    fn shape(&self) -> Shape {
        Shape::of(self.schema.as_deref())
    }

    /// Its description, with the columns of its rows.
    fn about(&self) -> String {
        let mut text = words::whole(&self.description);
        if !self.columns.is_empty() {
            let columns: Vec<String> =
                self.columns.iter().take(100).map(|(name, kind)| format!("{name} {kind}")).collect();
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}Columns: {}", words::whole(&columns.join(", ")));
        }
        text
    }
}

/// Functions that the cells of a session may call, tools first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    functions: Vec<Function>,
}

impl FromIterator<Function> for Catalog {
    fn from_iter<T: IntoIterator<Item = Function>>(functions: T) -> Catalog {
        Catalog { functions: functions.into_iter().collect() }
    }
}

impl Catalog {
    /// Functions besides those that every session has.
    pub fn len(&self) -> usize {
        self.listed().count()
    }

    /// Returns true if there are none besides those that every session has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn listed(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| !function.is_usual)
    }

    /// Returns all functions as a `.pyi` or a `.d.ts`; an empty text if there are none.
    pub fn stubs(&self, language: Language) -> String {
        let listed: Vec<&Function> = self.listed().collect();
        match language {
            Language::JavaScript => javascript::file(&listed),
            _ => python::file(&listed),
        }
    }

    /// Returns the text for a model: the stubs, or how to search for them from [`SEARCHED_FROM`] on.
    pub fn description(&self, language: Language) -> String {
        let count = self.len();
        if count < SEARCHED_FROM {
            return self.stubs(language);
        }
        let wait = if language == Language::JavaScript { "await " } else { "" };
        let mut groups: Vec<(String, usize)> = Vec::new();
        for function in self.listed() {
            let of = match &function.group {
                Group::Tool => "tool".to_owned(),
                Group::Pack(of) => format!("runtime.{}", words::whole(of)),
                Group::Connector(of) => words::whole(of),
            };
            match groups.iter_mut().find(|(name, _)| *name == of) {
                Some((_, number)) => *number = number.saturating_add(1),
                None => groups.push((of, 1)),
            }
        }
        let named: Vec<String> =
            groups.iter().take(GROUPS_MAX).map(|(name, number)| format!("`{name}` ({number})")).collect();
        let more = if groups.len() > GROUPS_MAX { " and others" } else { "" };
        format!(
            "{count} functions of the host: {}{more}. `{wait}tools.search(\"what it is to do\")` gives the signatures that fit best, \
             `{wait}tools.describe(name)` one with its types.",
            named.join(", ")
        )
    }

    /// Returns the signatures that fit a text best, each in one line, the best first: [`LINES`] unless `limit` says
    /// otherwise.
    pub fn search(&self, text: &str, language: Language, limit: Option<usize>) -> Vec<String> {
        let found = search::ranked(&self.functions, text, limit.unwrap_or(LINES).min(LINES_MAX));
        found.into_iter().map(|function| function.line(language)).collect()
    }

    /// The function of this name, with or without that of its group.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.is_named(name))
    }

    /// Returns the stub of the function of this name.
    ///
    /// # Errors
    /// There is none: the message names the one that was probably meant.
    pub fn describe(&self, name: &str, language: Language) -> Result<String, String> {
        if let Some(function) = self.get(name) {
            return Ok(match language {
                Language::JavaScript => javascript::file(&[function]),
                _ => python::file(&[function]),
            });
        }
        let names: Vec<String> = self.functions.iter().map(Function::qualified).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let near = nearest(name, &names).map(|near| format!("; did you mean `{near}`")).unwrap_or_default();
        Err(format!("there is no `{}`{near}; tools.search(\"…\") finds by what it does", words::first(name)))
    }
}
