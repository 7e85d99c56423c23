use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::{llm::Models, options::Llm, service::Service};

/// Has the bundled agent work on a task, as the script of its model has it.
async fn work(script: &Value, schema: Option<Value>, tokens: Option<u64>) -> Result<Value, CallError> {
    let service = Service::start("llm_server.py", &[]);
    let llm = Llm {
        endpoint: format!("http://127.0.0.1:{}/v1", service.port),
        api_key_env: None,
        timeout: Duration::from_secs(20),
        tiers: BTreeMap::from([("default".to_owned(), "medium".to_owned())]),
        reasoning_effort: BTreeMap::new(),
        calls: None,
        tokens,
    };
    let models = Arc::new(Models::new(llm));
    let bundled = Bundled { models, spent: Arc::default(), budget: None };
    let request = AgentRequest {
        prompt: format!("script {script}"),
        context: Some("none".to_owned()),
        label: None,
        model: None,
        schema,
        session: "s".to_owned(),
        depth: 1,
    };
    bundled.run(request, |cells: Vec<Cell>| async move { format!("ran {}", cells[0].code) }).await
}

#[tokio::test]
async fn the_model_runs_cells_until_it_answers() {
    let cells = json!([{"language": "py", "code": "6 * 7"}]);
    let script = json!([{"eval": cells}, {"eval": cells}, {"say": "it said: LAST"}]);
    assert_eq!(work(&script, None, None).await, Ok("it said: ran 6 * 7".into()));
}

#[tokio::test]
async fn what_it_calls_wrongly_is_told_it() {
    let script = json!([{"eval": [{"language": "perl", "code": "1"}]}, {"say": "LAST"}]);
    let said = work(&script, None, None).await.expect("an answer");
    assert!(said.as_str().is_some_and(|said| said.contains("$.cells[0].language")), "{said}");
    let script = json!([{"call": "browse", "arguments": {}}, {"say": "LAST"}]);
    assert_eq!(work(&script, None, None).await, Ok("There is no tool \"browse\".".into()));
}

#[tokio::test]
async fn an_object_of_a_schema_comes_by_a_call_or_in_words() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let wrong = json!({"call": "respond", "arguments": {"n": "six"}});
    for right in [json!({"call": "respond", "arguments": {"n": 6}}), json!({"say": "```json\n{\"n\": 6}\n```"})] {
        let script = json!([wrong, {"say": "six"}, right]);
        assert_eq!(work(&script, Some(schema.clone()), None).await, Ok(json!({"n": 6})));
    }
}

#[tokio::test]
async fn a_model_that_never_answers_is_given_up() {
    let cells = json!([{"language": "py", "code": "1"}]);
    let error = work(&json!([{"eval": cells}]), None, None).await.expect_err("it never answers");
    assert!(error.kind == CallErrorKind::Limit && error.message.contains("24 turns"), "{error}");
    let script = json!([{"eval": cells, "usage": {"total_tokens": TOKENS_MAX + 1}}]);
    let error = work(&script, None, None).await.expect_err("it is over its tokens");
    assert!(error.kind == CallErrorKind::Limit && error.message.contains("400000 tokens"), "{error}");
    let script = json!([{"eval": cells, "usage": {"total_tokens": 600}}]);
    let error = work(&script, None, Some(1_000)).await.expect_err("the session is over its tokens");
    assert!(error.message.contains("budget of 1000 tokens"), "{error}");
}

#[tokio::test]
async fn a_service_without_tools_is_told_of() {
    let error = work(&json!([]), None, None).await.expect_err("no such script");
    assert_eq!(error.kind, CallErrorKind::Failed);
}
