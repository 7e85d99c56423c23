//! Questions about a session: its names, one value, completions and help.

use cellar_engine::{Language, mime::MimeBundle};
use cellar_wire::{
    CompletionsJson, OriginJson, OriginsJson, StubsJson, VariableJson, bundle_value, language_of, look_body,
};
use http::StatusCode;
use serde_json::json;

use crate::{
    http::{Call, answers},
    problem::{Answer, Problem},
};

/// The language that a look names, Python unless it does.
fn language(call: &Call) -> Result<Language, Problem> {
    let asked = call.query(&["language"])?;
    let code = asked.get("language").map_or("py", String::as_str);
    language_of(code).ok_or_else(|| Problem::bad(format!("`language` is `py` or `js`, not `{code}`")))
}

/// `GET /v1/sessions/{session}/variables`
pub(crate) async fn variables(call: Call, name: &str) -> Answer {
    let language = language(&call)?;
    let variables = call.tenant.session(name).await?.session.variables(language).await?;
    let variables: Vec<VariableJson> = variables.into_iter().map(VariableJson::from).collect();
    answers::json(StatusCode::OK, &json!({ "variables": variables }))
}

/// `GET /v1/sessions/{session}/variables/{name}`
pub(crate) async fn value(call: Call, name: &str, variable: &str) -> Answer {
    let language = language(&call)?;
    let value = call.tenant.session(name).await?.session.value(language, variable).await?;
    let value = value.ok_or_else(|| Problem::unknown("variable"))?;
    answers::json(StatusCode::OK, &json!({ "data": bundle_value(&value) }))
}

/// `GET /v1/sessions/{session}/origins`
pub(crate) async fn origins(call: Call, name: &str) -> Answer {
    let language = language(&call)?;
    let session = call.tenant.session(name).await?.session;
    let (origins, former) = (session.origins(language).await?, session.former_origins(language).await?);
    let former = former.iter().map(|origin| OriginJson::from(&**origin));
    let named = origins.iter().map(|(name, origin)| (name.clone(), OriginJson::from(&**origin)));
    answers::json(StatusCode::OK, &OriginsJson::new(named, former))
}

/// `GET /v1/sessions/{session}/stubs`
pub(crate) async fn stubs(call: Call, name: &str) -> Answer {
    let language = language(&call)?;
    let catalog = call.tenant.session(name).await?.session.catalog().await;
    let stubs = StubsJson::new(language, catalog.len(), catalog.description(language));
    answers::json(StatusCode::OK, &stubs)
}

/// `POST /v1/sessions/{session}/complete`
pub(crate) async fn complete(mut call: Call, name: &str) -> Answer {
    let (language, code, cursor) = look_body(&call.body().await?)?;
    let completions = call.tenant.session(name).await?.session.complete(language, &code, cursor).await?;
    answers::json(StatusCode::OK, &CompletionsJson::from(completions))
}

/// `POST /v1/sessions/{session}/inspect`
pub(crate) async fn inspect(mut call: Call, name: &str) -> Answer {
    let (language, code, cursor) = look_body(&call.body().await?)?;
    let help = call.tenant.session(name).await?.session.inspect(language, &code, cursor).await?;
    answers::json(StatusCode::OK, &json!({ "data": help.as_ref().map(|help: &MimeBundle| bundle_value(help)) }))
}
