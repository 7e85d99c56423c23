//! Contexts: namespaces of a sandbox over its one workspace. The initial ones are the two languages of its first
//! session; each other one is a session of its own.

use axum_core::response::IntoResponse;
use cellar_engine::Language;
use cellar_files::{FileKind, ROOT};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Account, Call, files,
    lives::unimplemented,
    sandboxes::{Context, Sandbox, language_name, language_named},
    told,
};
use crate::{
    access::characters,
    problem::{Answer, Problem},
    tenant::{Opening, on_a_thread},
};

/// Contexts that a sandbox may have besides the initial ones.
const CONTEXTS_MAX: usize = 32;
/// Languages of the initial contexts, whose ids are their names.
const FIRST: [Language; 2] = [Language::Python, Language::JavaScript];

/// Returns the language of this name.
pub(super) fn language(name: &str) -> Result<Language, Problem> {
    language_named(name).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        Problem::bad(format!("this sandbox does not run `{name}`: its languages are `python` and `javascript`"))
    })
}

fn is_first(id: &str) -> Option<Language> {
    FIRST.into_iter().find(|language| language_name(*language) == id)
}

/// Returns the session of a context, and its language there.
pub(super) fn find(sandbox: &Sandbox, id: &str) -> Result<(String, Language), Problem> {
    if let Some(language) = is_first(id) {
        return Ok((sandbox.id.clone(), language));
    }
    let context = sandbox.contexts.iter().find(|context| context.id == id);
    let context = context.ok_or_else(|| {
        let id: String = id.chars().take(100).collect();
        Problem::new(StatusCode::NOT_FOUND, "unknown", format!("Context {id} not found"))
    })?;
    Ok((context.id.clone(), language(&context.language)?))
}

/// `GET /contexts`
pub(super) fn list(sandbox: &Sandbox) -> Answer {
    let first = FIRST.into_iter().map(|language| Context {
        id: language_name(language).to_owned(),
        language: language_name(language).to_owned(),
        cwd: files::HOME.to_owned(),
    });
    let contexts: Vec<Context> = first.chain(sandbox.contexts.iter().cloned()).collect();
    Ok(told(StatusCode::OK, &json!(contexts)))
}

/// `POST /contexts`
pub(super) async fn create(mut call: Call, sandbox: Sandbox) -> Answer {
    let object = call.object().await?;
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Problem::bad(format!("`{name}` is a text"))),
    };
    let language = language(text("language")?.unwrap_or(&sandbox.language))?;
    let cwd = text("cwd")?.filter(|cwd| !cwd.is_empty()).unwrap_or(files::HOME);
    let folder = files::Place::of(cwd)?;
    if sandbox.contexts.len() >= CONTEXTS_MAX {
        return Err(full());
    }
    let session = call.account.tenant.session(&sandbox.id).await?.session;
    let guest = folder.guest.clone();
    let found = on_a_thread(move || session.files().stat_at(ROOT, &guest, true)).await?;
    if !found.is_ok_and(|found| found.kind == FileKind::Directory) {
        return Err(Problem::bad(format!("there is no folder `{}`", folder.shown)));
    }
    let is_home = folder.guest == cellar_engine::config::WORKSPACE;
    if !is_home && language == Language::JavaScript {
        return Err(unimplemented("a working folder of JavaScript, other than that of the sandbox,"));
    }
    let id = format!("{}-{}", sandbox.id, characters(12).to_lowercase());
    let first = call.account.tenant.opening(&sandbox.id);
    let opening = Opening { beside: Some(sandbox.id.clone()), folder: (!is_home).then_some(folder.guest), ..first };
    let context = Context { id: id.clone(), language: language_name(language).to_owned(), cwd: folder.shown };
    // Others may have come meanwhile.
    let mut has_room = false;
    let begun = call.account.sandboxes.change(&sandbox.id, |sandbox| {
        has_room = sandbox.contexts.len().saturating_add(sandbox.loose.len()) < CONTEXTS_MAX;
        sandbox.loose.extend(has_room.then(|| id.clone()));
    });
    if begun?.is_none() {
        return Err(super::dead(Some(&sandbox.id)));
    }
    if !has_room {
        return Err(full());
    }
    let made = call.account.tenant.create_as(&id, false, None, opening).await;
    let kept = made.and_then(|()| {
        call.account.sandboxes.change(&sandbox.id, |sandbox| {
            sandbox.loose.retain(|name| *name != id);
            sandbox.contexts.push(context.clone());
        })
    });
    match kept {
        Ok(Some(_)) => Ok(told(StatusCode::CREATED, &json!(context))),
        kept => {
            remove_loose(&call.account, &sandbox.id, &id).await?;
            Err(kept.err().unwrap_or_else(|| super::dead(Some(&sandbox.id))))
        }
    }
}

/// Removes the session of a context that is noted as loose.
async fn remove_loose(account: &Account, sandbox: &str, id: &str) -> Result<(), Problem> {
    match account.tenant.delete(id).await {
        Err(problem) if problem.status() != StatusCode::NOT_FOUND => return Err(problem),
        _ => {}
    }
    account.sandboxes.change(sandbox, |sandbox| sandbox.loose.retain(|name| name != id)).map(drop)
}

fn full() -> Problem {
    let detail = format!("a sandbox may have {CONTEXTS_MAX} contexts besides those that it has from the start");
    Problem::limit("contexts", detail, std::time::Duration::from_secs(1))
}

/// `DELETE /contexts/{id}`
pub(super) async fn remove(call: Call, sandbox: Sandbox, id: &str) -> Answer {
    if let Some(language) = is_first(id) {
        // It is there from the start, and there again when it is asked for.
        call.account.tenant.session(&sandbox.id).await?.session.reset(language);
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    find(&sandbox, id)?;
    call.account.sandboxes.change(&sandbox.id, |sandbox| {
        sandbox.contexts.retain(|context| context.id != id);
        sandbox.loose.push(id.to_owned());
    })?;
    remove_loose(&call.account, &sandbox.id, id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /contexts/{id}/restart`
pub(super) async fn restart(call: Call, sandbox: Sandbox, id: &str) -> Answer {
    let (session, language) = find(&sandbox, id)?;
    let entry = call.account.tenant.session(&session).await?;
    entry.session.reset(language);
    entry.session.save().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
