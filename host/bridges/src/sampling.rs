//! `llm(…)` where no endpoint is configured: the client of a session may offer a model of its own.

use std::{fmt, sync::Arc};

use cellar_engine::bridges::{CallError, CallErrorKind, Response};
use cellar_secrets::quote;
use futures::future::BoxFuture;

use crate::{
    llm::{ANSWER_BYTES_MAX, Question, object, schema_of, schema_words},
    options::TIERS,
};

/// A prompt for a model that a client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Prompt.
    pub prompt: String,
    /// `smol`, `default` or `slow`: how good the model is to be, and how much it may cost.
    pub tier: String,
    /// System prompt.
    pub system: Option<String>,
}

/// The text of an answer, to be polled on the engine's runtime.
pub type SampleFuture = BoxFuture<'static, Result<String, CallError>>;

/// Asks models that others have.
pub trait Sampler: Send + Sync + fmt::Debug {
    /// Sends a prompt on behalf of a session. Returns `None` if no client offers it a model.
    fn ask(&self, session: &str, sample: Sample) -> Option<SampleFuture>;
}

/// Sends a question to a client that offers a model. Returns `None` if there is none.
///
/// # Errors
/// The tier is unknown, the schema cannot be used, the model is unavailable, its answer is empty, or does not match the
/// schema.
pub(super) fn ask(
    sampler: &Arc<dyn Sampler>,
    session: &str,
    question: Question,
) -> Option<BoxFuture<'static, Result<Response, CallError>>> {
    let Question { prompt, tier, system, schema } = question;
    let failed =
        |kind, what: String| -> BoxFuture<'static, _> { Box::pin(std::future::ready(Err(CallError::new(kind, what)))) };
    let schema = match schema.as_deref().map(schema_of).transpose() {
        Ok(schema) => schema,
        Err(error) => return Some(Box::pin(std::future::ready(Err(error)))),
    };
    let words = schema.as_ref().map(|(value, _)| schema_words(value));
    let system = [system, words].into_iter().flatten().reduce(|first, second| format!("{first}\n\n{second}"));
    let is_tier = TIERS.contains(&tier.as_str());
    let first = Sample { prompt, tier, system };
    let asked = sampler.ask(session, first.clone())?;
    if !is_tier {
        let what = format!("no model is set for tier {}; known are {}", quote(&first.tier), TIERS.join(", "));
        return Some(failed(CallErrorKind::Unknown, what));
    }
    let (sampler, session) = (sampler.clone(), session.to_owned());
    Some(Box::pin(async move {
        let text = checked(asked.await?)?;
        let Some((_, schema)) = schema else { return Ok(Response::Text(text)) };
        let fault = match object(&schema, &text) {
            Ok(object) => return Ok(Response::Json(object)),
            Err(fault) => fault,
        };
        let prompt = format!(
            "{}\n\nYour answer was:\n{text}\n\nThis is not the object that was asked for: {fault}. Give the whole object \
             again, corrected.",
            first.prompt
        );
        let gone = || CallError::new(CallErrorKind::Failed, "nobody offers a model any more");
        let again = sampler.ask(&session, Sample { prompt, ..first }).ok_or_else(gone)?;
        object(&schema, &checked(again.await?)?).map(Response::Json).map_err(|fault| {
            let message = format!("the model gave no object of the schema, asked twice: {fault}");
            CallError::new(CallErrorKind::Failed, message)
        })
    }))
}

/// An answer that is one.
fn checked(text: String) -> Result<String, CallError> {
    if text.len() > ANSWER_BYTES_MAX {
        let message = format!("the answer of the model is larger than {} MiB", ANSWER_BYTES_MAX >> 20);
        return Err(CallError::new(CallErrorKind::Limit, message));
    }
    if text.trim().is_empty() {
        return Err(CallError::new(CallErrorKind::Failed, "the model said nothing"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Answers what it has, and keeps what it was asked.
    #[derive(Debug)]
    struct Canned(Mutex<Vec<&'static str>>, Mutex<Vec<Sample>>);

    impl Sampler for Canned {
        fn ask(&self, session: &str, sample: Sample) -> Option<SampleFuture> {
            if session != "s" {
                return None;
            }
            self.1.lock().expect("nobody fails").push(sample);
            let answer = self.0.lock().expect("nobody fails").pop().map(str::to_owned);
            let gone = || CallError::new(CallErrorKind::Failed, "gone");
            Some(Box::pin(std::future::ready(answer.ok_or_else(gone))))
        }
    }

    fn question(tier: &str, schema: Option<&str>) -> Question {
        let (prompt, schema) = ("how?".to_owned(), schema.map(str::to_owned));
        Question { prompt, tier: tier.to_owned(), system: Some("be brief".to_owned()), schema }
    }

    #[tokio::test]
    async fn whoever_offers_a_model_is_asked() {
        const SCHEMA: &str = r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
        let canned = Arc::new(Canned(Mutex::new(vec!["{\"a\": 1}", "{\"a\": \"x\"}", " ", "so"]), Mutex::default()));
        let sampler: Arc<dyn Sampler> = canned.clone();
        assert!(ask(&sampler, "other", question("default", None)).is_none());
        let asked = |question| ask(&sampler, "s", question).expect("it is offered");
        assert_eq!(asked(question("smol", None)).await, Ok(Response::Text("so".to_owned())));
        assert!(asked(question("default", None)).await.expect_err("nothing").message.contains("said nothing"));
        let object = asked(question("slow", Some(SCHEMA))).await.expect("an object");
        assert_eq!(object, Response::Json("{\"a\":1}".to_owned()));
        let samples = canned.1.lock().expect("nobody fails").clone();
        assert_eq!((samples[0].tier.as_str(), samples[0].system.as_deref()), ("smol", Some("be brief")));
        assert!(samples[2].system.as_ref().is_some_and(|system| system.contains("\"integer\"")), "{samples:?}");
        assert!(samples[3].prompt.contains("not the object"), "{samples:?}");
        let unknown = asked(question("huge", None)).await.expect_err("no tier");
        assert_eq!(unknown.kind, CallErrorKind::Unknown);
    }
}
