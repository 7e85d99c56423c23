//! Stubs of tools: what models are told is code that Python and TypeScript read, whatever the schemas say.

use std::{path::Path, process::Command};

use cellar_engine::Language;
use cellar_stubs::{Catalog, Function, Group};
use serde_json::{Value, json};

use crate::support::{node, root};

/// Catalogs that are made up, each of some functions.
const CATALOGS: u64 = 40;
const FUNCTIONS: u64 = 12;

/// Choices that are the same each time.
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.below(of.len() as u64)).expect("small")]
    }

    fn name(&mut self) -> String {
        let odd = [
            "a",
            "b2",
            "from",
            "class",
            "self",
            "__x",
            "a-b",
            "a b",
            "ünï",
            "数据",
            "",
            "1st",
            "new",
            "get",
            "constructor",
            "A.b",
            "None",
            "x\"y",
            "x\\",
            "\n",
            "*/",
            "😀",
            "\u{202e}",
            "$ref",
            "Promise",
            "Any",
            "🤷\u{2028}",
        ];
        format!("{}{}", self.one(&odd), ["", "_1", "_2"][usize::try_from(self.below(3)).expect("small")])
    }

    fn text(&mut self) -> &'static str {
        self.one(&[
            "",
            "Adds.",
            "two\nlines",
            "\"\"\" ends",
            "*/ ends",
            "ends\\",
            "ends\"",
            "# ends",
            "\"\"\"\"\"",
            "\\u0041 \\N{x}",
            "\u{2028}x\u{85}",
            "/** @x */ ```",
        ])
    }

    fn schema(&mut self, depth: u64) -> Value {
        let kinds = if depth == 0 { 8 } else { 18 };
        let mut schema = match self.below(kinds) {
            0 => json!({"type": "string", "format": self.text()}),
            1 => json!({"type": ["integer", "null"], "default": 3}),
            2 => json!({"type": "number", "default": 1e300}),
            3 => json!({"type": "boolean", "nullable": true, "default": true}),
            4 => json!({"enum": [self.text(), self.name(), 1, -5, true, null, 1.5], "default": self.text()}),
            5 => json!({"const": self.name()}),
            6 => {
                json!({"$ref": format!("#/$defs/{}", ["N", "M", "none"][usize::try_from(self.below(3)).expect("small")])})
            }
            7 => json!(self.below(2) == 0),
            8 => json!({"type": "array", "items": self.schema(depth - 1)}),
            9 => {
                json!({"type": "array", "prefixItems": [self.schema(depth - 1), self.schema(depth - 1)], "items": false})
            }
            10 => json!({"type": "object", "additionalProperties": self.schema(depth - 1)}),
            11 => json!({"anyOf": [self.schema(depth - 1), self.schema(depth - 1), {"type": "null"}]}),
            12 => json!({"oneOf": [self.schema(depth - 1), self.schema(depth - 1)]}),
            13 => json!({"allOf": [self.object(depth - 1), self.schema(depth - 1)]}),
            14 => json!({"type": "array"}),
            15 => json!({"$ref": "#"}),
            _ => self.object(depth - 1),
        };
        if let (Value::Object(members), true) = (&mut schema, self.below(2) == 0) {
            members.insert("description".to_owned(), self.text().into());
        }
        schema
    }

    fn object(&mut self, depth: u64) -> Value {
        let properties: serde_json::Map<String, Value> =
            (0..self.below(5)).map(|_| (self.name(), self.schema(depth))).collect();
        let required: Vec<String> = properties.keys().filter(|_| self.below(2) == 0).cloned().collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    fn function(&mut self) -> Function {
        let group = match self.below(4) {
            0 => Group::Pack(self.name()),
            1 => Group::Connector(self.one(&["warehouse", "crm"]).to_owned()),
            _ => Group::Tool,
        };
        let mut schema = self.object(3);
        if let (Value::Object(members), true) = (&mut schema, self.below(3) > 0) {
            let definitions =
                json!({"N": self.object(2), "M": {"anyOf": [{"$ref": "#/$defs/M"}, {"$ref": "#/$defs/N"}]}});
            members.insert("$defs".to_owned(), definitions);
        }
        Function {
            group,
            name: self.name(),
            description: self.text().to_owned(),
            schema: (self.below(6) > 0).then(|| schema.to_string()),
            result: (self.below(3) == 0).then(|| self.schema(2).to_string()),
            columns: vec![(self.name(), self.text().to_owned())],
            is_usual: false,
        }
    }
}

/// Writes stubs of made-up functions into a folder, one file for each catalog.
fn write_stubs(folder: &Path, language: Language, extension: &str) {
    for number in 0..CATALOGS {
        let mut choices = Choices(number);
        let catalog: Catalog = (0..FUNCTIONS).map(|_| choices.function()).collect();
        std::fs::write(folder.join(format!("s{number}{extension}")), catalog.stubs(language)).expect("written");
    }
}

fn passes(command: &mut Command) {
    let ended = command.output().expect("it starts");
    let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ended.status.success(), "{}", said.concat());
}

#[test]
fn stubs_of_any_schema_are_python() {
    let folder = tempfile::tempdir().expect("a folder");
    write_stubs(folder.path(), Language::Python, ".pyi");
    // What is bound at the top is no more than types and the names that cells have.
    let check = "\
import ast, pathlib, sys
for path in pathlib.Path(sys.argv[1]).iterdir():
    tree = ast.parse(path.read_text(), str(path))
    for one in ast.walk(tree):
        assert not isinstance(one, ast.Call) or one.func.id == 'TypedDict', (path, ast.unparse(one))
    assert {type(one).__name__ for one in tree.body} <= {'ImportFrom', 'ClassDef', 'Assign', 'AnnAssign'}, path
";
    passes(Command::new("python3").args(["-c", check]).arg(folder.path()));
}

#[test]
fn stubs_of_any_schema_are_typescript() {
    let folder = tempfile::tempdir().expect("a folder");
    write_stubs(folder.path(), Language::JavaScript, ".d.ts");
    // Each is a program of its own: the names of all are global.
    let check = "\
const [ts, folder] = [require(process.argv[1]), process.argv[2]];
const host = ts.createCompilerHost({});
const read = host.getSourceFile;
const known = new Map();
host.getSourceFile = (name, ...more) => {
  if (!known.has(name)) known.set(name, read(name, ...more));
  return known.get(name);
};
for (const name of require('fs').readdirSync(folder)) {
  const program = ts.createProgram([`${folder}/${name}`], { strict: true, noEmit: true, types: [], lib: ['lib.es2023.d.ts'] }, host);
  for (const one of ts.getPreEmitDiagnostics(program)) {
    const at = one.file && one.file.text.slice(one.start - 60, one.start + 60);
    console.log(name, ts.flattenDiagnosticMessageText(one.messageText, '\\n'), at);
    process.exitCode = 1;
  }
}
";
    passes(
        Command::new(node())
            .args(["-e", check])
            .arg(root().join("target/node/node_modules/typescript"))
            .arg(folder.path()),
    );
}

/// Words of the names of usual tools.
const VERBS: &str = "create get list update delete search archive assign comment_on export import merge move notify pin preview publish \
                     rename restore review schedule share subscribe_to tag watch";
const THINGS: &str = "issue pull_request repository branch commit release workflow channel message thread user team document page folder \
                      file calendar_event task project board invoice customer order payment product subscription contact deal ticket \
                      report dashboard query dataset table pipeline job server deployment secret webhook";

/// Tools as those of servers are that many use: verbs and things, with a few arguments each.
fn usual_tools(count: usize) -> Vec<Function> {
    let (verbs, things): (Vec<&str>, Vec<&str>) = (VERBS.split(' ').collect(), THINGS.split(' ').collect());
    let arguments = [
        ("title", json!({"type": "string", "description": "Title, at most 200 characters"})),
        ("body", json!({"type": "string", "description": "Text in Markdown"})),
        (
            "state",
            json!({"type": "string", "enum": ["open", "closed", "all"], "default": "open", "description": "Which ones to take"}),
        ),
        ("labels", json!({"type": "array", "items": {"type": "string"}, "description": "Names of labels"})),
        (
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 30, "description": "Results on a page"}),
        ),
        ("cursor", json!({"type": ["string", "null"], "description": "Where the page begins"})),
        ("since", json!({"type": "string", "format": "date-time", "description": "Only what has changed since"})),
        (
            "assignee",
            json!({"type": "object", "properties": {"id": {"type": "string"}, "notify": {"type": "boolean", "default": true}}, "required": ["id"], "additionalProperties": false, "description": "Whose it is to be"}),
        ),
    ];
    (0..count)
        .map(|number| {
            let (verb, thing) = (verbs[number % 25], things[(number / 25 + number) % 40]);
            let mut properties = serde_json::Map::new();
            properties.insert(format!("{thing}_id"), json!({"type": "string", "description": format!("Id of the {}", thing.replace('_', " "))}));
            for place in 0..2 + number % 4 {
                let (name, schema) = &arguments[(number + 3 * place) % arguments.len()];
                properties.insert((*name).to_owned(), schema.clone());
            }
            let schema = json!({"type": "object", "properties": properties, "required": [format!("{thing}_id")], "additionalProperties": false});
            Function {
                group: Group::Tool,
                name: format!("{verb}_{thing}"),
                description: format!("{} a {} and returns what it is afterwards, with the time of the change", verb.replace('_', " "), thing.replace('_', " ")),
                schema: Some(schema.to_string()),
                result: None,
                columns: Vec::new(),
                is_usual: false,
            }
        })
        .collect()
}

/// Prints the tokens of the table in `host/FIGURES.md`: `--no-capture` shows them.
#[test]
#[expect(clippy::print_stdout, reason = "it is where the figures come from")]
fn stubs_take_fewer_tokens_than_lists_of_tools() {
    let tokenizer = tiktoken_rs::o200k_base_singleton();
    let tokens = |text: &str| tokenizer.encode_ordinary(text).len();
    for count in [10, 100, 1_000] {
        let functions = usual_tools(count);
        let flat: Vec<Value> = functions
            .iter()
            .map(|one| {
                let parameters: Value = serde_json::from_str(one.schema.as_deref().expect("a schema")).expect("JSON");
                json!({"type": "function", "function": {"name": one.name, "description": one.description, "parameters": parameters}})
            })
            .collect();
        let flat = tokens(&Value::from(flat).to_string());
        let catalog: Catalog = functions.into_iter().collect();
        for language in [Language::Python, Language::JavaScript] {
            let (told, all) = (tokens(&catalog.description(language)), tokens(&catalog.stubs(language)));
            let found = catalog.search("close an issue", language, None).join("\n");
            let stub = catalog.describe("create_issue", language).expect("known");
            let (found, stub) = (tokens(&found), tokens(&stub));
            println!(
                "{count} tools, {}: flat {flat}, told {told}, all stubs {all}, a search {found}, a stub {stub}",
                language.title()
            );
            assert!(all * 10 < flat * 8, "{count}: stubs take {all}, the list {flat}");
            assert!(count < 20 || told < 120, "{count}: {told}");
        }
    }
}
