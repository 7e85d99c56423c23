//! `[runtime]` of a `cellar.toml`: packs of primitives that are commands or components.

use std::collections::BTreeMap;

use cellar_bridges::{Primitive, RuntimePack};
use cellar_wire::check::{At, Fields};

use super::{Parser, tools::TOOL_KEYS};

/// Names under `runtime.` that are taken: the pack that every session has, and the functions that list packs, in both languages.
const OWN_NAMES: [&str; 7] = [
    "selfref",
    "list_primitives",
    "list_primitive_specs",
    "get_primitive_spec",
    "listPrimitives",
    "listPrimitiveSpecs",
    "getPrimitiveSpec",
];
/// Attributes of every primitive and of every pack.
const CALL_NAMES: [&str; 3] = ["spec", "aio", "sync"];

impl Parser<'_> {
    pub(super) fn packs(&mut self, fields: &Fields<'_>) -> BTreeMap<String, RuntimePack> {
        let packs = self.named(fields, "runtime", Parser::pack);
        for name in packs.keys().filter(|name| OWN_NAMES.contains(&name.as_str())) {
            let message = format_args!("every session has a `runtime.{name}`: choose another name");
            self.problems.add(&format!("runtime.{name}"), message);
        }
        self.refuse_object_names("runtime", packs.keys());
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
                _ if let Some(taken) = name.split('.').find(|part| CALL_NAMES.contains(part)) => {
                    self.problems.add(&at.path, format_args!("every primitive has a `{taken}`: choose another name"));
                }
                _ => {
                    let Some(primitive) = self.primitive(&at) else { continue };
                    pack.primitives.insert(name.to_owned(), primitive);
                }
            }
        }
        self.refuse_object_names(&at.path, pack.primitives.keys());
        Some(pack)
    }

    fn primitive(&mut self, at: &At<'_>) -> Option<Primitive> {
        let fields = at.fields(&[&TOOL_KEYS[..], &["result"]].concat(), &mut self.problems)?;
        let tool = self.tool(at, &fields);
        let result = fields.get("result").and_then(|at| self.schema(&at));
        Some(Primitive { tool: tool?, result })
    }
}
