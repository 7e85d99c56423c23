use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The first.
    a: i64,
    b: i64,
    #[serde(default)]
    scale: Option<Scale>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Scale {
    Linear,
    Log,
}

fn tools() -> Tools {
    Tools::new()
        .tool("add", "adds", |args: Add| async move {
            Ok(match args.scale {
                Some(Scale::Log) => json!({"log": args.a + args.b}),
                Some(Scale::Linear) | None => json!(args.a + args.b),
            })
        })
        .blocking_tool("divide", "divides", |args: Add| {
            args.a.checked_div(args.b).ok_or_else(|| ToolFailure::new("the divisor is 0"))
        })
        .tool("parse", "fails with an error of the library", |_: Add| async move { Ok("x".parse::<i64>()?) })
        .tool("panic", "panics", |args: Add| async move {
            assert!(args.a == 0, "with a secret");
            Ok(())
        })
        .blocking_tool("panic_blocking", "panics on its thread", |args: Add| {
            assert!(args.a == 0, "with a secret");
            Ok(())
        })
        .tool("fraction", "what JSON cannot hold", |_: Add| async move {
            Ok(std::collections::BTreeMap::from([((1, 2), 3)]))
        })
}

async fn call(name: &str, arguments: &str) -> Result<String, String> {
    let tool = tools().get(name).expect(name);
    match tool.call(arguments.to_owned(), CellId(1)).await {
        Ok(Response::Json(text)) => Ok(text),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.message),
    }
}

#[tokio::test]
async fn functions_are_called_with_their_types() {
    assert_eq!(call("add", r#"{"a": 1, "b": 2}"#).await, Ok("3".to_owned()));
    assert_eq!(call("add", r#"{"a": 1, "b": 2, "scale": "log"}"#).await, Ok(r#"{"log":3}"#.to_owned()));
    assert_eq!(call("divide", r#"{"a": 6, "b": 2}"#).await, Ok("3".to_owned()));
}

#[tokio::test]
async fn failures_and_panics_name_the_tool_and_nothing_of_the_host() {
    assert_eq!(call("divide", r#"{"a": 6, "b": 0}"#).await, Err("tool `divide` failed: the divisor is 0".to_owned()));
    let parse = "tool `parse` failed: invalid digit found in string";
    assert_eq!(call("parse", r#"{"a": 0, "b": 0}"#).await, Err(parse.to_owned()));
    assert_eq!(call("panic", r#"{"a": 1, "b": 0}"#).await, Err("tool `panic` panicked".to_owned()));
    assert_eq!(call("panic_blocking", r#"{"a": 1, "b": 0}"#).await, Err("tool `panic_blocking` panicked".to_owned()));
    assert_eq!(call("panic", r#"{"a": 0, "b": 0}"#).await, Ok("null".to_owned()));
    let fraction = "tool `fraction` gave what JSON cannot hold: key must be a string";
    assert_eq!(call("fraction", r#"{"a": 0, "b": 0}"#).await, Err(fraction.to_owned()));
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_named_before_the_call() {
    let begin = "tool `panic`: the arguments do not fit its schema: ";
    for (arguments, fault) in [
        ("{}", "`/a`: expected a value, found nothing; `/b`: expected a value, found nothing"),
        (r#"{"a": 1.5, "b": 0}"#, "`/a`: expected integer, found 1.5"),
        (r#"{"a": 0, "b": [1, 2]}"#, "`/b`: expected integer, found [1,2]"),
        (r#"{"a": 0, "b": 0, "skale": "log"}"#, "`/skale`: unknown field, did you mean `scale`?"),
        (r#"{"a": 0, "b": 0, "z~/": 1}"#, "`/z~0~1`: unknown field, known are `a`, `b` and `scale`"),
    ] {
        assert_eq!(call("panic", arguments).await, Err(format!("{begin}{fault}")), "{arguments}");
    }
    let kinds = call("panic", r#"{"a": 0, "b": 0, "scale": "square"}"#).await.expect_err("refused");
    assert!(kinds.starts_with(&format!("{begin}`/scale`: ")), "{kinds}");
}

#[test]
fn schemas_are_those_of_the_types() {
    let specs: Vec<ToolSpec> = tools().specs().collect();
    let add = &specs[0];
    assert_eq!((add.name.as_str(), add.description.as_str()), ("add", "adds"));
    let schema: serde_json::Value = serde_json::from_str(add.schema.as_deref().expect("a schema")).expect("JSON");
    assert_eq!(schema["properties"]["a"]["description"], "The first.");
    assert_eq!(schema["required"], json!(["a", "b"]));
}
