//! `[tools]` of a `cellar.toml`: commands, and components in sandboxes of their own. Primitives of packs are the same.

use std::collections::BTreeMap;

use cellar_bridges::{Component, ComponentProgram, Program, Tool};
use cellar_wire::check::{At, Fields};

use super::Parser;

/// Tools that every session has.
const OWN_TOOLS: [&str; 1] = ["read"];
/// Properties that JavaScript finds in any object, or reads to learn what it is.
const OBJECT_NAMES: [&str; 8] = [
    "then",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];
/// Keys of a tool.
pub(super) const TOOL_KEYS: [&str; 12] = [
    "command",
    "component",
    "arguments",
    "mounts",
    "memory_mib",
    "fuel",
    "description",
    "schema",
    "environment",
    "inherit",
    "timeout",
    "confirm",
];
/// Seconds that a tool is given unless the file says more.
const TIMEOUT_SECONDS: u64 = 60;
/// MiB of memory that a component is given unless the file says otherwise.
const MEMORY_MIB: u64 = 64;
/// Most MiB that the file may give: all calls of components share as much.
const MEMORY_MIB_MAX: u64 = 2_048;

impl Parser<'_> {
    pub(super) fn tools(&mut self, fields: &Fields<'_>) -> BTreeMap<String, Tool> {
        let tools = self.named(fields, "tools", |parser, at| {
            let fields = at.fields(&TOOL_KEYS, &mut parser.problems)?;
            parser.tool(at, &fields)
        });
        for name in tools.keys().filter(|name| OWN_TOOLS.contains(&name.as_str())) {
            let message = format_args!("every session has a tool `{name}`: choose another name");
            self.problems.add(&format!("tools.{name}"), message);
        }
        self.refuse_object_names("tools", tools.keys());
        tools
    }

    /// Refuses names, or parts of them, by which cells in JavaScript reach something else.
    pub(super) fn refuse_object_names<'a>(&mut self, path: &str, names: impl Iterator<Item = &'a String>) {
        for name in names {
            if let Some(taken) = name.split('.').find(|part| OBJECT_NAMES.contains(part)) {
                let message = format_args!("`{taken}` means something else in JavaScript: choose another name");
                self.problems.add(&format!("{path}.{name}"), message);
            }
        }
    }

    /// Parses the table of a tool or a primitive.
    pub(super) fn tool(&mut self, at: &At<'_>, fields: &Fields<'_>) -> Option<Tool> {
        let description = self.text(fields, "description").unwrap_or_default();
        let schema = fields.get("schema").and_then(|at| self.schema(&at));
        let program = match (fields.get("command"), fields.get("component")) {
            (Some(_), None) => {
                for key in ["arguments", "mounts", "memory_mib", "fuel"] {
                    self.only_beside(fields, key, "component");
                }
                self.command(fields, TIMEOUT_SECONDS).map(Program::Command)
            }
            (None, Some(file)) => self.component(&file, fields).map(Program::Component),
            _ => {
                let expected =
                    "expected either `command`, a program of this machine, or `component`, one for a sandbox";
                self.problems.add(&at.path, expected);
                None
            }
        };
        Some(Tool { program: program?, description, schema, confirm: self.confirm(fields) })
    }

    fn component(&mut self, file: &At<'_>, fields: &Fields<'_>) -> Option<Component> {
        let file = file.filled_text(&mut self.problems);
        let mut texts = |key, what| fields.get(key).and_then(|at| at.texts(what, &mut self.problems));
        let arguments = texts("arguments", "string").unwrap_or_default();
        let inherit = texts("inherit", "name").unwrap_or_default();
        let mut number = |key, most| fields.get(key).and_then(|at| at.integer(1..=most, &mut self.problems));
        let memory_mib = number("memory_mib", MEMORY_MIB_MAX).unwrap_or(MEMORY_MIB);
        let fuel = number("fuel", u64::MAX);
        let program = ComponentProgram {
            arguments,
            mounts: fields.get("mounts").map(|at| self.mounts(&at)).unwrap_or_default(),
            environment: self.environment(fields),
            memory_bytes: memory_mib << 20,
            fuel,
            timeout: self.timeout(fields, TIMEOUT_SECONDS),
            file: self.path(file?),
        };
        Some(Component { program, inherit })
    }
}
