use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::*;

/// A variable that every test has, in the place of a key.
const KEY: &str = "CARGO_MANIFEST_DIR";

/// The service of `fixtures/bridges/llm_server.py`.
struct Service {
    process: Child,
    endpoint: String,
}

impl Service {
    fn start() -> Service {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bridges/llm_server.py");
        let mut process = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let mut port = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut port).expect("a port");
        Service { process, endpoint: format!("http://127.0.0.1:{}/v1", port.trim()) }
    }

    fn config(&self) -> Llm {
        Llm {
            endpoint: self.endpoint.clone(),
            api_key_env: None,
            timeout: Duration::from_secs(20),
            tiers: BTreeMap::from([("default".to_owned(), "medium".to_owned())]),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn question(prompt: &str, schema: Option<&str>) -> Question {
    Question { prompt: prompt.to_owned(), tier: "default".to_owned(), system: None, schema: schema.map(str::to_owned) }
}

async fn ask(config: Llm, question: Question) -> Result<Response, CallError> {
    Arc::new(Models::new(config)).ask(question).await
}

/// The message of a call that fails with `Failed`.
async fn failure(config: Llm, prompt: &str, schema: Option<&str>) -> String {
    let error = ask(config, question(prompt, schema)).await.expect_err(prompt);
    assert_eq!(error.kind, CallErrorKind::Failed, "{error}");
    error.message
}

const OBJECT: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

#[tokio::test]
async fn text_comes_back() {
    let service = Service::start();
    let answer = ask(service.config(), question("echo hello there", None)).await;
    assert_eq!(answer, Ok(Response::Text("hello there".to_owned())));
}

#[tokio::test]
async fn the_request_is_what_the_service_expects() {
    let service = Service::start();
    let question = Question { system: Some("be brief".to_owned()), ..question("request", None) };
    let Ok(Response::Text(text)) = ask(service.config(), question).await else { panic!("text") };
    let system = r#"{"role":"system","content":"be brief"}"#;
    let expected = format!(r#"{{"model":"medium","messages":[{system},{{"role":"user","content":"request"}}]}}"#);
    assert_eq!(text.parse::<Value>().expect("JSON"), expected.parse::<Value>().expect("JSON"));
}

#[tokio::test]
async fn a_schema_leads_to_an_object() {
    let service = Service::start();
    let json = |text: &str| Ok(Response::Json(text.to_owned()));
    let ask = |prompt| ask(service.config(), question(prompt, Some(OBJECT)));
    assert_eq!(ask(r#"tool {"n": 7}"#).await, json(r#"{"n":7}"#));
    assert_eq!(ask(r#"echo {"n": 8}"#).await, json(r#"{"n":8}"#), "a model that writes the object as text");
    assert_eq!(ask(r#"format {"n": 9}"#).await, json(r#"{"n":9}"#), "a service without tools");
}

#[tokio::test]
async fn answers_that_do_not_fit_are_refused() {
    let service = Service::start();
    let start = "model `medium` gave no object of the schema: ";
    let message = failure(service.config(), r#"tool {"n": "x"}"#, Some(OBJECT)).await;
    assert_eq!(message, format!("{start}\"x\" is not of type \"integer\" (at `$.n`)"));
    let message = failure(service.config(), "tool [1]", Some(OBJECT)).await;
    assert_eq!(message, format!("{start}expected a JSON object, found \"[1]\""));
    let message = failure(service.config(), "echo seven", Some(OBJECT)).await;
    assert_eq!(message, format!("{start}expected value at line 1 column 1 in \"seven\""));
}

#[tokio::test]
async fn each_way_to_fail_has_its_message() {
    let service = Service::start();
    let check = async |prompt: &str, expected: &str| {
        assert_eq!(failure(service.config(), prompt, None).await, expected);
    };
    check("refuse", "model `medium` refused: I would rather not").await;
    check("empty", "model `medium` gave an empty answer").await;
    check("no choices", "model `medium` sent a reply without choices").await;
    check("status 500", "model `medium` answered with HTTP status 500 Internal Server Error: so be it").await;
    check("redirect", "model `medium` answered with HTTP status 307 Temporary Redirect").await;
    let malformed = "model `medium` sent a reply that is not a chat completion (expected value at line 1 column 1)";
    check("malformed", &format!("{malformed}: \"<html>\"")).await;
}

#[tokio::test]
async fn a_tier_without_a_model_is_unknown() {
    let service = Service::start();
    let question = Question { tier: "slow".to_owned(), ..question("echo", None) };
    let error = ask(service.config(), question).await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Unknown);
    let message = "no model is set for tier \"slow\"; set are `default` under [llm.tiers] in cellar.toml";
    assert_eq!(error.message, message);
}

#[tokio::test]
async fn a_key_is_sent_and_never_told() {
    let service = Service::start();
    let with_key = |name: &str| Llm { api_key_env: Some(name.to_owned()), ..service.config() };
    let told = failure(with_key(KEY), "key", None).await;
    assert_eq!(told, "model `medium` answered with HTTP status 401 Unauthorized: the key was Bearer ***");
    let missing = failure(with_key("CELLAR_NO_SUCH_KEY"), "key", None).await;
    let expected = "llm has no key: the environment variable `CELLAR_NO_SUCH_KEY` (llm.api_key_env) is not set";
    assert_eq!(missing, expected);
    let none = failure(service.config(), "key", None).await;
    assert!(none.ends_with("the key was absent"), "{none}");
}

#[tokio::test]
async fn a_silent_service_is_given_up() {
    let service = Service::start();
    let config = Llm { timeout: Duration::from_secs(1), ..service.config() };
    let error = ask(config, question("slow 20", None)).await.expect_err("given up");
    assert_eq!(error.kind, CallErrorKind::Limit);
    assert_eq!(error.message, "model `medium` did not answer within 1 s");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_named_by_its_model_alone() {
    let endpoint = "http://127.0.0.1:1/v1".to_owned();
    let message = failure(Llm { endpoint, ..Service::start().config() }, "echo", None).await;
    assert!(message.starts_with("model `medium` cannot be reached: "), "{message}");
    assert!(message.contains("Connection refused") && !message.contains("/v1"), "{message}");
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused_before_anything_is_asked() {
    let service = Service::start();
    let error = ask(service.config(), question("echo", Some("[]"))).await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Invalid);
    assert_eq!(error.message, "llm cannot be given this schema: it must be a JSON object");
}
