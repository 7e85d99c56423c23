//! `[runtime]` of a `cellar.toml`: packs of primitives that are commands.

use cellar_bridges::{Primitive, RuntimePack, Tool};

use super::Parser;
use crate::check::At;

impl Parser<'_> {
    /// A pack: `description` and `version` are texts, every other member is a primitive.
    pub(super) fn pack(&mut self, at: &At<'_>) -> Option<RuntimePack> {
        let mut pack = RuntimePack::default();
        for (name, at) in at.entries(&mut self.problems)? {
            match name {
                "description" => pack.description = at.text(&mut self.problems)?.to_owned(),
                "version" => pack.version = Some(at.text(&mut self.problems)?.to_owned()),
                _ if !name.split('.').all(super::is_name) => {
                    self.problems
                        .add(&at.path, "expected a name of letters, digits, `_` and `-`, with dots between such");
                }
                _ => {
                    let Some(primitive) = self.primitive(&at) else { continue };
                    pack.primitives.insert(name.to_owned(), primitive);
                }
            }
        }
        Some(pack)
    }

    fn primitive(&mut self, at: &At<'_>) -> Option<Primitive> {
        let known = ["command", "description", "schema", "result", "environment", "inherit", "timeout"];
        let fields = at.fields(&known, &mut self.problems)?;
        let command = self.command(&fields, 60);
        let description = self.text(&fields, "description").unwrap_or_default();
        let schema = fields.get("schema").and_then(|at| self.schema(&at));
        let result = fields.get("result").and_then(|at| self.schema(&at));
        Some(Primitive { tool: Tool { command: command?, description, schema }, result })
    }
}
