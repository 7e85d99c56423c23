use cellar_core::cell::Language;
use serde_json::{Value, json};

use super::*;

fn function(name: &str, description: &str, schema: Option<Value>) -> Function {
    Function {
        group: Group::Tool,
        name: name.to_owned(),
        description: description.to_owned(),
        schema: schema.map(|schema| schema.to_string()),
        result: None,
        columns: Vec::new(),
        is_usual: false,
    }
}

fn both(functions: Vec<Function>) -> (String, String) {
    let catalog: Catalog = functions.into_iter().collect();
    (catalog.stubs(Language::Python), catalog.stubs(Language::JavaScript))
}

fn issue() -> Function {
    function(
        "create_issue",
        "Creates an issue.\nIt is open.",
        Some(json!({
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "in a line"},
                "state": {"enum": ["open", "closed"], "default": "open"},
                "due": {"type": ["string", "null"], "format": "date"},
                "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
                "size": {"anyOf": [{"type": "integer"}, {"type": "number"}], "default": 1},
                "by": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "nullable": true}}, "required": ["name"]},
            },
            "required": ["title", "labels"],
            "$defs": {"Label": {"type": "object", "properties": {"text": {"type": "string"}, "inner": {"type": "array", "items": {"$ref": "#/$defs/Label"}}}, "required": ["text"]}},
        })),
    )
}

#[test]
fn a_schema_becomes_types_of_both_languages() {
    let (python, javascript) = both(vec![issue()]);
    assert_eq!(
        python,
        r#"from typing import Any, Literal, NotRequired, TypedDict

class CreateIssue_Label(TypedDict):
    text: str
    inner: NotRequired[list[CreateIssue_Label]]
class CreateIssue_By(TypedDict):
    name: str
    age: NotRequired[int | None]
class Tool:
    def create_issue(self, *, title: str, state: Literal["open", "closed"] = "open", due: str | None = ..., labels: list[CreateIssue_Label], size: int | float = 1, by: CreateIssue_By = ...) -> Any:
        """Creates an issue. It is open.
        title: in a line
        due: date
        """
tool: Tool
"#
    );
    assert_eq!(
        javascript,
        r#"type CreateIssue_Label = { text: string; inner?: CreateIssue_Label[] };
declare const tool: {
  /** Creates an issue. It is open. */
  create_issue(args: { /** in a line */ title: string; state?: "open" | "closed"; /** date */ due?: string | null; labels: CreateIssue_Label[]; size?: number; by?: { name: string; age?: number | null } }): Promise<any>;
};
"#
    );
}

#[test]
fn a_line_shows_objects_in_place() {
    assert_eq!(
        issue().line(Language::Python),
        "tool.create_issue(*, title: str, state: Literal[\"open\", \"closed\"] = \"open\", due: str | None = ..., labels: \
         list[{text: str, inner?: list[dict]}], size: int | float = 1, by: {name: str, age?: int | None} = ...) -> Any  # Creates an issue."
    );
    let add = function("add-up", "", Some(json!({"properties": {"from": {"type": "integer"}}, "required": ["from"]})));
    assert_eq!(add.line(Language::Python), "tool[\"add-up\"]({from: int}) -> Any");
    assert_eq!(add.line(Language::JavaScript), "tool[\"add-up\"](args: { from: number }): Promise<any>");
}

#[test]
fn packs_and_connectors_lie_below_their_names() {
    let primitive = |name: &str| Function {
        group: Group::Pack("numbers".to_owned()),
        result: Some(json!({"type": "integer"}).to_string()),
        ..function(name, "", Some(json!({"type": "object", "properties": {}})))
    };
    let fetch = Function {
        group: Group::Connector("warehouse".to_owned()),
        columns: vec![("id".to_owned(), "int64".to_owned())],
        ..function("orders", "Orders.", Some(json!({"properties": {"since": {"type": "string"}}})))
    };
    let (python, javascript) = both(vec![primitive("one"), primitive("one.more"), fetch]);
    assert_eq!(
        python,
        "from typing import Any\n\n\
         class Runtime_Numbers_One:\n    def more(self) -> int: ...\n    def __call__(self) -> int: ...\n\
         class Runtime_Numbers:\n    one: Runtime_Numbers_One\n\
         class Runtime:\n    numbers: Runtime_Numbers\nruntime: Runtime\n\
         class Warehouse:\n    def orders(self, *, since: str = ..., refresh: bool = False) -> Any:\n        \
         \"\"\"Orders. Columns: id int64\"\"\"\nwarehouse: Warehouse\n"
    );
    assert_eq!(
        javascript,
        "declare const runtime: {\n  numbers: {\n    one: {\n      (): Promise<number>;\n      more(): Promise<number>;\n    };\n  };\n};\n\
         declare const warehouse: {\n  /** Orders. Columns: id int64 */\n  \
         orders(args?: { since?: string }, options?: { refresh?: boolean }): Promise<{ [column: string]: any }[]>;\n};\n"
    );
}

#[test]
fn no_description_ends_its_comment() {
    let hostile = "x\"\"\" + evil() */ evil() /* \u{202e}\n\\\"\"\"\"";
    let schema = json!({"properties": {"a": {"description": hostile}}});
    let (python, javascript) = both(vec![function("f", hostile, Some(schema))]);
    assert_eq!(python.matches("\"\"\"").count(), 2, "{python}");
    assert_eq!(javascript.matches("*/").count(), 2, "{javascript}");
    assert!(!python.contains('\u{202e}'));
    let line = function("f", hostile, None).line(Language::Python);
    assert_eq!(line, "tool.f(**arguments) -> Any  # x\"\"\" + evil() */ evil() /*");
}

#[test]
fn schemas_without_end_are_bounded() {
    let itself = json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    let (python, _) = both(vec![function("f", "", Some(itself))]);
    assert!(python.contains("F_A = Any\n"), "{python}");
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    let wide: serde_json::Map<String, Value> = (0..5_000).map(|n| (format!("p{n}"), json!({"enum": [n]}))).collect();
    let (python, javascript) = both(vec![
        function("f", "", Some(json!({"properties": {"deep": deep}}))),
        function("g", "", Some(json!({"properties": wide}))),
    ]);
    assert!(python.len() < 20_000 && javascript.len() < 20_000, "{} {}", python.len(), javascript.len());
    let long = "long ".repeat(100_000);
    let (python, _) = both(vec![function(&long, &long, Some(json!({"properties": {long.clone(): {"const": long}}})))]);
    assert!(python.len() < 2_000_000, "{}", python.len());
}

#[test]
fn a_search_finds_by_name_before_description() {
    let catalog: Catalog = [
        function("create_issue", "Creates an issue", None),
        function("listPulls", "Lists pull requests and the issues that they close", None),
        function("weather", "Tells the weather of a city", None),
    ]
    .into_iter()
    .collect();
    let names = |query: &str| -> Vec<String> {
        let found = catalog.search(query, Language::Python, None);
        found.iter().map(|line| line.split('(').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names("issues"), ["tool.create_issue", "tool.listPulls"]);
    assert_eq!(names("pull"), ["tool.listPulls"]);
    assert_eq!(names("weath"), ["tool.weather"]);
    assert_eq!(names("the weather of Oslo"), ["tool.weather", "tool.listPulls"]);
    assert!(names("unrelated").is_empty() && names("").is_empty());
    assert_eq!(catalog.search("issue", Language::Python, Some(1)).len(), 1);
}

#[test]
fn a_name_is_described_with_or_without_its_group() {
    let catalog: Catalog = [issue(), function("add-up", "", None)].into_iter().collect();
    for name in ["create_issue", "tool.create_issue"] {
        assert!(catalog.describe(name, Language::JavaScript).expect("known").contains("create_issue(args"));
    }
    assert!(
        catalog
            .describe("tool[\"add-up\"]", Language::Python)
            .expect("known")
            .contains("# tool[\"add-up\"]\n    def add_up(")
    );
    let refused = catalog.describe("create_isue", Language::Python).expect_err("unknown");
    assert!(refused.contains("did you mean `create_issue`"), "{refused}");
}

#[test]
fn many_are_searched_and_few_are_listed() {
    let catalog = |count: usize| -> Catalog { (0..count).map(|n| function(&format!("f{n}"), "", None)).collect() };
    assert!(catalog(SEARCHED_FROM - 1).description(Language::Python).contains("def f18("));
    let many = catalog(SEARCHED_FROM).description(Language::JavaScript);
    assert!(many.starts_with("20 functions of the host: `tool` (20). `await tools.search("), "{many}");
    assert_eq!(catalog(0).description(Language::Python), "");
}
