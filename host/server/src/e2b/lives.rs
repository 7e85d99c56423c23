//! Lifecycle of sandboxes: made, resumed, paused, forked, kept as snapshots, and killed, by clients or when their time
//! is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use cellar_engine::{GuestName, Language};
use http::StatusCode;
use rand::Rng;

use super::{
    Account, dead,
    sandboxes::{Context, Sandbox, language_name},
};
use crate::{access::characters, problem::Problem, tenant::Opening};

/// Interval between checks for sandboxes whose time is over.
const LOOK: Duration = Duration::from_millis(500);
/// Characters of an id: lower-case letters and digits, because hosts are named by it.
const ID_LENGTH: usize = 25;
/// Lifetime in seconds of a sandbox whose request names none, as with E2B.
pub(super) const TIMEOUT_SECONDS: u64 = 300;
/// Seconds that a sandbox may ask for.
pub(super) const TIMEOUT_SECONDS_MAX: u64 = 30 * 24 * 3_600;

/// Templates, by name: E2B's own names, and those of the guests. Those that name no guests have the usual ones.
const TEMPLATES: [(&str, &[GuestName], Language); 8] = [
    ("code-interpreter-v1", &[], Language::Python),
    ("code-interpreter", &[], Language::Python),
    ("base", &[], Language::Python),
    ("python", &[GuestName::Python], Language::Python),
    ("data", &[GuestName::PythonData], Language::Python),
    ("python-data", &[GuestName::PythonData], Language::Python),
    ("javascript", &[], Language::JavaScript),
    ("js", &[], Language::JavaScript),
];

/// A sandbox to make.
#[derive(Debug, Default)]
pub(super) struct NewSandbox {
    pub(super) template: String,
    pub(super) timeout: Option<u64>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) auto_pause: bool,
    pub(super) auto_resume: bool,
}

/// Milliseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Start of a new sandbox, in milliseconds since the Unix epoch: later than that of any before it, so that lists have one
/// order.
fn started_at() -> u64 {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let now = now();
    let next = |latest: u64| now.max(latest.saturating_add(1));
    let set = LATEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| Some(next(latest)));
    set.map_or_else(next, next)
}

fn end_at(timeout: u64) -> u64 {
    now().saturating_add(timeout.saturating_mul(1_000))
}

fn new_id(kind: &str) -> String {
    const ALPHABET: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut random = rand::rng();
    let id: String = (0..ID_LENGTH).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect();
    format!("{kind}{id}")
}

/// Makes a sandbox of a template, or of a snapshot.
pub(super) async fn create(account: &Account, new: NewSandbox) -> Result<Sandbox, Problem> {
    account.sandboxes.check_room()?;
    let id = new_id("sbx");
    let timeout = new.timeout.unwrap_or(TIMEOUT_SECONDS);
    let fresh = |template: &str, language: &str| Sandbox {
        id: id.clone(),
        template: template.to_owned(),
        language: language.to_owned(),
        metadata: new.metadata.clone(),
        started_at: started_at(),
        end_at: end_at(timeout),
        is_paused: false,
        auto_pause: new.auto_pause,
        auto_resume: new.auto_resume,
        secret: characters(43),
        contexts: Vec::new(),
        snapshot_of: None,
        name: None,
        loose: Vec::new(),
    };
    // Its name may be followed by that of a build, of which there is one.
    let template = new.template.split(':').next().unwrap_or_default();
    let known = TEMPLATES.iter().find(|(name, ..)| *name == template);
    match known {
        Some((name, guests, language)) => {
            let usual = account.tenant.usual_guests().to_vec();
            let guests = if guests.is_empty() { &usual[..] } else { guests };
            let opening = Opening {
                guests: guests.iter().map(|guest| guest.name().to_owned()).collect(),
                environment: environment(&new),
                ..Opening::default()
            };
            make(account, fresh(name, language_name(*language)), account.tenant.create_as(&id, false, None, opening))
                .await
        }
        None => {
            let snapshot = account.sandboxes.snapshot(&new.template).ok_or_else(|| unknown_template(&new.template))?;
            if !new.environment.is_empty() {
                return Err(unimplemented("`envVars` of a sandbox that begins with a snapshot"));
            }
            let contexts = contexts_of(&id, &snapshot);
            let sandbox = Sandbox { contexts, ..fresh(&snapshot.id, &snapshot.language) };
            make(account, sandbox.clone(), copy(account, &snapshot, &sandbox)).await
        }
    }
}

/// Returns the variables of a sandbox: what the caller sets, and the one by which programs know where they are; the data
/// guest tells of charts where it is set.
fn environment(new: &NewSandbox) -> Vec<(String, String)> {
    let own = ("E2B_SANDBOX".to_owned(), "true".to_owned());
    [own]
        .into_iter()
        .filter(|(name, _)| new.environment.iter().all(|(given, _)| given != name))
        .chain(new.environment.iter().cloned())
        .collect()
}

/// Records a sandbox and makes its sessions. Whatever happens meanwhile, a session of it exists only while its record
/// says so.
async fn make(
    account: &Account,
    sandbox: Sandbox,
    sessions: impl Future<Output = Result<(), Problem>>,
) -> Result<Sandbox, Problem> {
    account.sandboxes.begin(&sandbox)?;
    let id = sandbox.id.clone();
    let made = sessions.await.and_then(|()| account.sandboxes.complete(sandbox));
    if made.is_err()
        && let Some(over) = account.sandboxes.end(&id, |_| true)
    {
        end_sessions(account, &over).await;
    }
    made
}

fn unknown_template(template: &str) -> Problem {
    let names: Vec<&str> = TEMPLATES.iter().map(|(name, ..)| *name).collect();
    let template: String = template.chars().take(100).collect();
    let detail =
        format!("there is no template or snapshot `{template}`; templates are {}", cellar_core::text::list(&names));
    Problem::new(StatusCode::NOT_FOUND, "unknown", detail)
}

/// Returns the refusal of a feature that this server lacks.
pub(super) fn unimplemented(what: &str) -> Problem {
    Problem::new(StatusCode::NOT_IMPLEMENTED, "unimplemented", format!("{what} is not implemented by this server"))
}

/// Returns the contexts of a sandbox that is to be made from another one.
fn contexts_of(id: &str, from: &Sandbox) -> Vec<Context> {
    let context = |(place, context): (usize, &Context)| Context { id: format!("{id}-{place}"), ..context.clone() };
    (1..).zip(&from.contexts).map(context).collect()
}

/// Copies the sessions of a sandbox for another one, with their state and a copy of the files.
async fn copy(account: &Account, from: &Sandbox, to: &Sandbox) -> Result<(), Problem> {
    account.tenant.fork(&from.id, Some(to.id.clone())).await?;
    for (old, new) in from.contexts.iter().zip(&to.contexts) {
        let _turn = account.tenant.snapshot_turn().await?;
        let snapshot = account.tenant.session(&old.id).await?.session.snapshot().await?;
        let opening = Opening { beside: Some(to.id.clone()), ..account.tenant.opening(&old.id) };
        account.tenant.create_as(&new.id, false, Some(snapshot), opening).await?;
    }
    Ok(())
}

/// Makes another sandbox with the state of one.
pub(super) async fn fork(account: &Account, from: &Sandbox, timeout: u64) -> Result<Sandbox, Problem> {
    account.sandboxes.check_room()?;
    let id = new_id("sbx");
    let contexts = contexts_of(&id, from);
    let (started_at, end_at, loose) = (started_at(), end_at(timeout), Vec::new());
    let sandbox =
        Sandbox { id, contexts, started_at, end_at, is_paused: false, secret: characters(43), loose, ..from.clone() };
    make(account, sandbox.clone(), copy(account, from, &sandbox)).await
}

/// Keeps the state and the files of a sandbox, for others to begin with.
pub(super) async fn take_snapshot(account: &Account, of: &Sandbox, name: Option<String>) -> Result<Sandbox, Problem> {
    account.sandboxes.check_room()?;
    let id = new_id("snp");
    let (contexts, loose) = (contexts_of(&id, of), Vec::new());
    let snapshot_of = Some(of.id.clone());
    let snapshot = Sandbox { id, contexts, started_at: started_at(), snapshot_of, name, loose, ..of.clone() };
    let kept = make(account, snapshot.clone(), copy(account, of, &snapshot)).await?;
    // They are stored, and nothing runs in them.
    kept.sessions().iter().for_each(|name| drop(account.tenant.hub.close(name)));
    Ok(kept)
}

/// Returns the sandbox of this id, unless its time is over and it is not to be paused then.
pub(super) fn find(account: &Account, id: &str) -> Result<Sandbox, Problem> {
    let sandbox = account.sandboxes.get(id).filter(|sandbox| sandbox.auto_pause || !sandbox.is_due(now()));
    sandbox.ok_or_else(|| not_found(id))
}

/// Frees the memory of a sandbox until somebody connects to it. Returns true if it was running.
pub(super) async fn pause(account: &Account, id: &str, is_with_memory: bool) -> Result<bool, Problem> {
    let _turn = account.sandboxes.turn(id).await;
    find(account, id)?;
    let mut was_running = false;
    let changed = account.sandboxes.change(id, |sandbox| {
        was_running = !sandbox.is_paused;
        sandbox.is_paused = true;
    })?;
    let sandbox = changed.ok_or_else(|| not_found(id))?;
    if was_running {
        cancel_runs(account, &sandbox);
        for name in sandbox.sessions() {
            let session = account.tenant.session(&name).await?.session;
            if !is_with_memory {
                forget_memory(&session);
            }
            session.save().await?;
            // Whoever connects wakes it from what is stored.
            drop(session);
            account.tenant.hub.put_away(&name).await?;
        }
    }
    Ok(was_running)
}

/// Gives a session fresh kernels.
pub(super) fn forget_memory(session: &cellar_engine::Session) {
    [Language::Python, Language::JavaScript].into_iter().for_each(|language| session.reset(language));
}

fn cancel_runs(account: &Account, sandbox: &Sandbox) {
    let names = sandbox.sessions();
    for (_, runs) in account.tenant.hub.sessions().into_iter().filter(|(name, _)| names.contains(name)) {
        runs.iter().filter_map(|id| account.tenant.hub.run(id).ok()).for_each(|run| run.cancel());
    }
}

/// Resumes a sandbox, if it is paused, for at least `timeout` seconds from now. Also returns true if it was paused.
pub(super) async fn resume(
    account: &Account,
    id: &str,
    timeout: u64,
    is_with_memory: bool,
) -> Result<(Sandbox, bool), Problem> {
    let _turn = account.sandboxes.turn(id).await;
    find(account, id)?;
    let mut was_paused = false;
    let changed = account.sandboxes.change(id, |sandbox| {
        let end_at = end_at(timeout);
        was_paused = std::mem::take(&mut sandbox.is_paused);
        sandbox.end_at = if was_paused { end_at } else { sandbox.end_at.max(end_at) };
    })?;
    let sandbox = changed.ok_or_else(|| not_found(id))?;
    if was_paused && !is_with_memory {
        for name in sandbox.sessions() {
            forget_memory(&account.tenant.session(&name).await?.session);
        }
    }
    Ok((sandbox, was_paused))
}

/// Sets the end of a sandbox, in seconds from now.
pub(super) fn set_timeout(account: &Account, id: &str, timeout: u64) -> Result<(), Problem> {
    find(account, id)?;
    let changed = account.sandboxes.change(id, |sandbox| sandbox.end_at = end_at(timeout))?;
    changed.map(drop).ok_or_else(|| not_found(id))
}

/// Ends a sandbox, or removes a snapshot. Returns true if it existed.
pub(super) async fn remove(account: &Account, id: &str) -> bool {
    let Some(over) = account.sandboxes.end(id, Sandbox::is_whole) else { return false };
    end_sessions(account, &over).await;
    true
}

/// Removes the sessions of a sandbox that is over, and forgets it. If a session cannot be removed, it is tried again
/// later.
async fn end_sessions(account: &Account, over: &Sandbox) {
    match remove_sessions(account, over).await {
        true => account.sandboxes.forget(&over.id),
        false => account.sandboxes.leave(&over.id),
    }
}

/// Removes the sessions of a sandbox; returns true if none is left.
async fn remove_sessions(account: &Account, over: &Sandbox) -> bool {
    let mut all_went = true;
    account.watchers.forget(&over.id);
    // Those that share the workspace of the first go before it.
    for name in over.all_sessions().iter().rev() {
        match account.tenant.delete(name).await {
            Err(problem) if problem.status() != StatusCode::NOT_FOUND => {
                all_went = false;
                tracing::debug!(session = name, problem = problem.words(), "a session of a sandbox was not removed");
            }
            _ => {}
        }
    }
    all_went
}

/// Cleans up after a crash of the server: removes sessions that were being made or removed, and sandboxes without
/// sessions.
async fn heal(account: &Account) -> Result<(), Problem> {
    let found = account.sandboxes.found();
    if found.is_empty() {
        return Ok(());
    }
    let stored: BTreeSet<String> = account.tenant.hub.stored().await?.into_iter().map(|info| info.name).collect();
    for sandbox in found {
        if !stored.contains(&sandbox.id) {
            remove(account, &sandbox.id).await;
            continue;
        }
        let mut removed = Vec::new();
        for name in &sandbox.loose {
            match account.tenant.delete(name).await {
                Err(problem) if problem.status() != StatusCode::NOT_FOUND => {}
                _ => removed.push(name),
            }
        }
        let is_lost = |name: &String| sandbox.contexts.iter().any(|one| one.id == *name) && !stored.contains(name);
        account.sandboxes.change(&sandbox.id, |now| {
            now.loose.retain(|name| !removed.contains(&name));
            now.contexts.retain(|context| !is_lost(&context.id));
        })?;
    }
    Ok(())
}

/// Returns the problem for a sandbox that does not exist.
pub(super) fn not_found(id: &str) -> Problem {
    let id: String = id.chars().take(100).collect();
    Problem::new(StatusCode::NOT_FOUND, "unknown", format!("Sandbox {id} not found"))
}

/// Returns the sandbox, if it may be used now. A paused one is resumed if it has `auto_resume`; one whose time is over
/// is refused.
pub(super) async fn running(account: &Account, sandbox: Sandbox) -> Result<Sandbox, Problem> {
    let sandbox = match sandbox.is_paused && sandbox.auto_resume {
        true => resume(account, &sandbox.id, TIMEOUT_SECONDS, true).await?.0,
        false => sandbox,
    };
    if sandbox.is_paused || sandbox.is_due(now()) {
        return Err(dead(Some(&sandbox.id)));
    }
    match account.tenant.session(&sandbox.id).await {
        // Whoever removed its session, by another door, has ended it.
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            remove(account, &sandbox.id).await;
            Err(dead(Some(&sandbox.id)))
        }
        Err(problem) => Err(problem),
        Ok(_) => Ok(sandbox),
    }
}

/// Ends the sandboxes whose time is over, for as long as this is polled.
pub(super) async fn end_in_time(accounts: Vec<Arc<Account>>) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for account in &accounts {
        if let Err(problem) = heal(account).await {
            tracing::warn!(
                tenant = account.tenant.name,
                problem = problem.words(),
                "it was not looked for what a crash has left"
            );
        }
    }
    loop {
        tick.tick().await;
        for account in &accounts {
            for sandbox in account.sandboxes.due(now()) {
                let account = account.clone();
                // One that takes its time holds up no other.
                tokio::spawn(async move {
                    if !sandbox.auto_pause {
                        // It may have been given more time meanwhile.
                        if let Some(over) = account.sandboxes.end(&sandbox.id, |sandbox| sandbox.is_due(now())) {
                            end_sessions(&account, &over).await;
                        }
                    } else if account.sandboxes.get(&sandbox.id).is_some_and(|sandbox| sandbox.is_due(now()))
                        && let Err(problem) = pause(&account, &sandbox.id, true).await
                    {
                        tracing::warn!(sandbox = sandbox.id, problem = problem.words(), "a pause failed");
                    }
                });
            }
        }
    }
}
