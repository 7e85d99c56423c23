//! `[runtime]` of a `cellar.toml`: packs of primitives that are commands.

use std::collections::BTreeMap;

use cellar_bridges::{Primitive, RuntimePack, Tool};

use super::Parser;
use crate::check::{At, Fields};

/// Names that stand for something else behind `runtime.`: the pack that every session has, and what lists packs.
const OWN_NAMES: [&str; 3] = ["selfref", "list_primitives", "list_primitive_specs"];

impl Parser<'_> {
    pub(super) fn packs(&mut self, fields: &Fields<'_>) -> BTreeMap<String, RuntimePack> {
        let packs = self.named(fields, "runtime", Parser::pack);
        for name in packs.keys().filter(|name| OWN_NAMES.contains(&name.as_str())) {
            let message = format_args!("every session has a `runtime.{name}`: choose another name");
            self.problems.add(&format!("runtime.{name}"), message);
        }
        packs
    }

    /// A pack: `description` and `version` are texts, every other member is a primitive.
    fn pack(&mut self, at: &At<'_>) -> Option<RuntimePack> {
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
