use std::collections::BTreeMap;

use super::*;
use crate::service::Service;

/// A variable that every test has, in the place of a key.
const KEY: &str = "CARGO_MANIFEST_DIR";

/// A service that answers as `fixtures/bridges/llm_server.py` says.
fn start() -> Service {
    Service::start("llm_server.py", &[])
}

impl Service {
    fn config(&self) -> Llm {
        Llm {
            endpoint: format!("http://127.0.0.1:{}/v1", self.port),
            api_key_env: None,
            timeout: Duration::from_secs(20),
            tiers: BTreeMap::from([("default".to_owned(), "medium".to_owned())]),
            reasoning_effort: BTreeMap::new(),
            calls: None,
            tokens: None,
        }
    }
}

fn question(prompt: &str, schema: Option<&str>) -> Question {
    Question { prompt: prompt.to_owned(), tier: "default".to_owned(), system: None, schema: schema.map(str::to_owned) }
}

async fn ask(config: Llm, question: Question) -> Result<Response, CallError> {
    models(config).ask(question, Arc::default(), None).await
}

/// Returns the models of `config` with short pauses.
fn models(config: Llm) -> Arc<Models> {
    let models = Models::new(config);
    let pace = models.pace.with_min_delay(Duration::from_millis(1));
    Arc::new(Models { pace, ..models })
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
    let service = start();
    let answer = ask(service.config(), question("echo hello there", None)).await;
    assert_eq!(answer, Ok(Response::Text("hello there".to_owned())));
}

#[tokio::test]
async fn the_request_is_what_the_service_expects() {
    let service = start();
    let question = Question { system: Some("be brief".to_owned()), ..question("request", None) };
    let Ok(Response::Text(text)) = ask(service.config(), question).await else { panic!("text") };
    let system = r#"{"role":"system","content":"be brief"}"#;
    let expected = format!(r#"{{"model":"medium","messages":[{system},{{"role":"user","content":"request"}}]}}"#);
    assert_eq!(text.parse::<Value>().expect("JSON"), expected.parse::<Value>().expect("JSON"));
}

#[tokio::test]
async fn a_tier_may_be_told_to_think() {
    let service = start();
    let effort = BTreeMap::from([("default".to_owned(), "high".to_owned())]);
    let config = Llm { reasoning_effort: effort, ..service.config() };
    let Ok(Response::Text(text)) = ask(config, question("request", None)).await else { panic!("text") };
    assert_eq!(text.parse::<Value>().expect("JSON")["reasoning_effort"], "high");
}

#[tokio::test]
async fn nothing_is_not_asked() {
    let service = start();
    let error = ask(service.config(), question(" \n", None)).await.expect_err("an empty prompt");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (CallErrorKind::Invalid, "llm needs a prompt, and this one is empty")
    );
}

#[tokio::test]
async fn a_schema_leads_to_an_object() {
    let service = start();
    let json = |text: &str| Ok(Response::Json(text.to_owned()));
    let ask = |prompt| ask(service.config(), question(prompt, Some(OBJECT)));
    assert_eq!(ask(r#"tool {"n": 7}"#).await, json(r#"{"n":7}"#));
    assert_eq!(ask(r#"echo {"n": 8}"#).await, json(r#"{"n":8}"#), "a model that writes the object as text");
    assert_eq!(ask(r#"format {"n": 9}"#).await, json(r#"{"n":9}"#), "a service without tools");
}

#[tokio::test]
async fn answers_that_do_not_fit_are_refused() {
    let service = start();
    let start = "model `medium` gave no object of the schema, asked twice: ";
    let message = failure(service.config(), r#"tool {"n": "x"}"#, Some(OBJECT)).await;
    assert_eq!(message, format!("{start}`/n`: expected integer, found \"x\""));
    let message = failure(service.config(), "tool [1]", Some(OBJECT)).await;
    assert_eq!(message, format!("{start}expected a JSON object, found \"[1]\""));
    let message = failure(service.config(), "echo seven", Some(OBJECT)).await;
    assert_eq!(message, format!("{start}expected value at line 1 column 1 in \"seven\""));
}

#[tokio::test]
async fn each_way_to_fail_has_its_message() {
    let service = start();
    let check = async |prompt: &str, expected: &str| {
        assert_eq!(failure(service.config(), prompt, None).await, expected);
    };
    check("refuse", "model `medium` refused: I would rather not").await;
    check("empty", "model `medium` gave an empty answer").await;
    check("no choices", "model `medium` sent a reply without choices").await;
    check("status 403", "model `medium` answered with HTTP status 403 Forbidden: so be it").await;
    check("filtered", "model `medium` refused: its content filter stopped the answer").await;
    for reason in ["error", "aborted", "ERROR"] {
        let message = format!("model `medium` failed while it wrote its answer (finish_reason `{reason}`)");
        check(&format!("finished {reason}"), &message).await;
    }
    check("finished SAFETY", "model `medium` refused: its content filter stopped the answer").await;
    check("finished max_tokens", "model `medium` was cut off by its output limit after 4 characters").await;
    check("cut off", "model `medium` was cut off by its output limit after 7 characters").await;
    check("cut off at once", "model `medium` used up its output limit without an answer").await;
    check("out of money", "model `medium` answered with HTTP status 429 Too Many Requests: no credit").await;
    check("redirect", "model `medium` answered with HTTP status 307 Temporary Redirect").await;
    let malformed = "model `medium` sent a reply that is not a chat completion (expected value at line 1 column 1)";
    check("malformed", &format!("{malformed}: \"<html>\"")).await;
}

#[tokio::test]
async fn a_tier_without_a_model_is_unknown() {
    let service = start();
    let question = Question { tier: "slow".to_owned(), ..question("echo", None) };
    let error = ask(service.config(), question).await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Unknown);
    let message = "no model is set for tier \"slow\"; set are `default` under [llm.tiers] in cellar.toml";
    assert_eq!(error.message, message);
}

#[tokio::test]
async fn a_key_is_sent_and_never_told() {
    let service = start();
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
    let service = start();
    let config = Llm { timeout: Duration::from_secs(1), ..service.config() };
    let error = ask(config, question("slow 20", None)).await.expect_err("given up");
    assert_eq!(error.kind, CallErrorKind::Limit);
    assert_eq!(error.message, "model `medium` did not answer within 1 s");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_named_by_its_model_alone() {
    let endpoint = "http://127.0.0.1:1/v1".to_owned();
    let message = failure(Llm { endpoint, ..start().config() }, "echo", None).await;
    assert!(message.starts_with("model `medium` cannot be reached: "), "{message}");
    assert!(message.contains("Connection refused") && !message.contains("/v1"), "{message}");
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused_before_anything_is_asked() {
    let service = start();
    let error = ask(service.config(), question("echo", Some("[]"))).await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Invalid);
    assert_eq!(error.message, "llm cannot be given this schema: it must be a JSON object");
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    let service = start();
    let text = |text: &str| Ok(Response::Text(text.to_owned()));
    assert_eq!(ask(service.config(), question("flaky 503 2 back", None)).await, text("back"));
    assert_eq!(ask(service.config(), question("flaky 429 3 again", None)).await, text("again"));
    assert_eq!(ask(service.config(), question("flaky 0 1 broken", None)).await, text("broken"), "a lost connection");
    let message = failure(service.config(), "status 500", None).await;
    let expected = "model `medium` answered with HTTP status 500 Internal Server Error: so be it (asked 4 times)";
    assert_eq!(message, expected);
    let message = failure(service.config(), "flaky 0 9 never", None).await;
    assert!(message.starts_with("model `medium` cannot be reached: "), "{message}");
    let message = failure(service.config(), "break off", None).await;
    assert!(message.starts_with("the reply of model `medium` broke off: "), "{message}");
    assert!(message.ends_with("(asked 4 times)"), "{message}");
}

#[tokio::test]
async fn a_service_says_how_long_to_wait() {
    let service = start();
    let began = std::time::Instant::now();
    let answer = ask(service.config(), question("limited 1 now", None)).await;
    assert_eq!(answer, Ok(Response::Text("now".to_owned())));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let message = failure(service.config(), "limited 3600 later", None).await;
    let expected = "model `medium` answered with HTTP status 429 Too Many Requests: slow down";
    assert_eq!(message, expected, "nobody waits for an hour");
}

#[tokio::test]
async fn an_object_that_does_not_fit_is_sent_back_once() {
    let service = start();
    let json = |text: &str| Ok(Response::Json(text.to_owned()));
    let ask = |prompt| ask(service.config(), question(prompt, Some(OBJECT)));
    assert_eq!(ask(r#"repair {"n": "x"} {"n": 3}"#).await, json(r#"{"n":3}"#));
    assert_eq!(ask(r#"repair nonsense {"n": 4}"#).await, json(r#"{"n":4}"#));
    assert_eq!(ask(r#"words {"n": 5}"#).await, json(r#"{"n":5}"#), "a service that takes no schema in any form");
}

#[tokio::test]
async fn a_budget_of_calls_is_kept() {
    let service = start();
    let models = models(Llm { calls: Some(2), ..service.config() });
    let spent = Arc::new(Spent::default());
    let ask = || models.clone().ask(question("echo hi", None), spent.clone(), None);
    assert!(ask().await.is_ok() && ask().await.is_ok());
    let error = ask().await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Limit);
    assert_eq!(error.message, "this session has used its budget of 2 questions (calls under [llm] in cellar.toml)");
    let other = models.clone().ask(question("echo hi", None), Arc::default(), None).await;
    assert!(other.is_ok(), "another session has its own");
}

#[tokio::test]
async fn a_budget_of_tokens_is_kept() {
    let service = start();
    let models = models(Llm { tokens: Some(100), ..service.config() });
    let spent = Arc::new(Spent::default());
    let ask = |prompt| models.clone().ask(question(prompt, None), spent.clone(), None);
    assert!(ask("usage 60").await.is_ok() && ask("usage 60").await.is_ok());
    let error = ask("usage 1").await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Limit);
    assert_eq!(error.message, "this session has used its budget of 100 tokens (tokens under [llm] in cellar.toml)");
    let spent = Arc::new(Spent::default());
    let prompt = format!("echo {}", "word ".repeat(100));
    let uncounted = models.clone().ask(question(&prompt, None), spent.clone(), None).await;
    assert!(uncounted.is_ok());
    assert!(spent.tokens.load(Ordering::Relaxed) > 200, "a service that does not count: {spent:?}");
}

/// Tokens that are left to all.
#[derive(Debug)]
struct Left(AtomicU64);

impl TokenBudget for Left {
    fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err("no tokens are left".to_owned()) }
    }

    fn spend(&self, tokens: u64) {
        let left = |left: u64| Some(left.saturating_sub(tokens));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

#[tokio::test]
async fn a_budget_that_sessions_share_is_spent_by_all_of_them() {
    let service = start();
    let models = models(service.config());
    let budget: Arc<dyn TokenBudget> = Arc::new(Left(AtomicU64::new(100)));
    let ask = || models.clone().ask(question("usage 60", None), Arc::default(), Some(budget.clone()));
    assert!(ask().await.is_ok() && ask().await.is_ok());
    let error = ask().await.expect_err("refused");
    assert_eq!((error.kind, error.message.as_str()), (CallErrorKind::Limit, "no tokens are left"));
}

#[tokio::test]
async fn a_question_that_is_given_up_is_dropped_at_the_service() {
    let service = start();
    let given_up = tokio::spawn(ask(service.config(), question("hang", None)));
    assert_eq!(ask(service.config(), question("hanging", None)).await, Ok(Response::Text("1".to_owned())));
    given_up.abort();
    assert_eq!(ask(service.config(), question("dropped", None)).await, Ok(Response::Text("dropped".to_owned())));
}

#[tokio::test]
async fn a_reply_that_is_too_large_is_not_read_to_its_end() {
    let service = start();
    let error = ask(service.config(), question("endless", None)).await.expect_err("refused");
    assert_eq!(error.kind, CallErrorKind::Limit);
    assert_eq!(error.message, "the reply of model `medium` is larger than 16 MiB");
}
