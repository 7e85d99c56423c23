//! `cellar artifact`: the outputs that are kept besides the sessions.

use std::{
    fmt::Write as _,
    fs::File,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use cellar_engine::artifacts::{
    AGENT_SCHEME, Artifact, ArtifactQuota, ArtifactStore, Collection, Description, Verified,
};

use crate::{
    args::{ArtifactArguments, ArtifactCommand, ArtifactPut, Folders},
    output,
    report::{CliError, EXIT_COMPLETE, EXIT_FAILURE, print_progress},
    sessions::{age_text, size_text},
    table::table,
};
use cellar_config::{ArtifactsTable, Config};
use cellar_wire::{ArtifactJson, CollectedJson, PulledJson, PushedJson, VerifiedJson};

/// Default of `gc`: days without use after which artifacts are removed.
const UNUSED_DAYS: u64 = 30;
/// Default of `put`: MIME type of the artifact.
const MIME_TYPE: &str = "application/octet-stream";

/// Time that a command waits until the remote store has received what it kept. The next command sends the rest.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// Waits, on a thread for blocking calls, until the remote store has received what was kept, and reports what it has not.
pub(crate) async fn settle(wait: impl FnOnce() -> Option<usize> + Send + 'static) {
    if let Ok(Some(left @ 1..)) = tokio::task::spawn_blocking(wait).await {
        tell_left(left);
    }
}

fn tell_left(left: usize) {
    print_progress(&format!("{left} are still to be sent to the remote store: `cellar artifact push` waits for them"));
}

/// Opens the store of artifacts beside the stored sessions.
///
/// # Errors
/// No folder was named and the user has none, or it cannot be made.
pub(crate) fn store(folders: &Folders, table: &ArtifactsTable) -> Result<ArtifactStore, CliError> {
    Ok(cellar_config::Folders::from(folders).artifacts(table)?)
}

/// Runs a command on the store of artifacts.
///
/// # Errors
/// The store fails, or has no such artifact.
pub(crate) fn artifact(folders: &Folders, arguments: &ArtifactArguments) -> Result<u8, CliError> {
    let config = arguments.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    let store = match arguments.temporary {
        true => ArtifactStore::temporary(config.artifacts.quota(ArtifactQuota::TEMPORARY))?,
        false => store(folders, &config.artifacts)?,
    };
    match &arguments.command {
        ArtifactCommand::List { session, json } => list(&store, session.as_deref(), *json)?,
        ArtifactCommand::Get { id, file, session, raw } => get(&store, id, file, session.as_deref(), *raw)?,
        ArtifactCommand::Put(arguments) => put(&store, arguments)?,
        ArtifactCommand::Delete { ids } => {
            for id in ids {
                store.delete(id)?;
            }
        }
        ArtifactCommand::Gc { unused_days, unreferenced, max_mib, json } => {
            let is_told = unused_days.is_some() || *unreferenced || max_mib.is_some();
            let days = unused_days.or((!is_told).then_some(UNUSED_DAYS));
            let collected = store.collect(&Collection {
                unused_for: days.map(|days| Duration::from_secs(days.saturating_mul(24 * 3_600))),
                unreferenced: *unreferenced || !is_told,
                total_bytes: max_mib.map(|mib| mib.saturating_mul(1 << 20)),
            })?;
            let size = size_text(collected.size_bytes);
            tell(*json, &CollectedJson::from(collected), || {
                format!("removed {} artifacts, {size}\n", collected.count)
            })?;
        }
        ArtifactCommand::Verify { ids, remote, json } => {
            let verified = store.verify(ids, *remote)?;
            tell(*json, &VerifiedJson::from(&verified), || verified_text(&verified))?;
            return Ok(exit_code(&verified.lost));
        }
        ArtifactCommand::Push { ids, json } => {
            let pushed = store.push(ids)?;
            tell(*json, &PushedJson::from(pushed), || match pushed.queued {
                0 => format!("sent {}\n", pushed.sent),
                queued => format!("sent {}; another process is to send {queued}\n", pushed.sent),
            })?;
        }
        ArtifactCommand::Pull { ids, all, json } => {
            let pulled = store.pull(ids, *all)?;
            tell(*json, &PulledJson::from(&pulled), || {
                let text = format!("{} versions of datasets, {} artifacts\n", pulled.versions, pulled.artifacts);
                text + &lost_text(&pulled.lost)
            })?;
            return Ok(exit_code(&pulled.lost));
        }
    }
    Ok(EXIT_COMPLETE)
}

/// Something that is lost is a failure.
fn exit_code(lost: &[String]) -> u8 {
    if lost.is_empty() { EXIT_COMPLETE } else { EXIT_FAILURE }
}

fn verified_text(verified: &Verified) -> String {
    let Verified { sound, unknown, healed, sent, lost, .. } = verified;
    let mut text = format!("{sound} are sound");
    for (count, what) in [
        (*unknown, "have no digest"),
        (healed.len(), "were fetched back"),
        (sent.len(), "were sent again"),
        (lost.len(), "are lost"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text + "\n" + &lost_text(lost)
}

fn lost_text(lost: &[String]) -> String {
    lost.iter().map(|id| format!("{id}  is lost: there is no good copy\n")).collect()
}

fn list(store: &ArtifactStore, session: Option<&str>, json: bool) -> Result<(), CliError> {
    let mut all = store.list()?;
    all.retain(|artifact| session.is_none_or(|wanted| artifact.sessions.iter().any(|name| name == wanted)));
    let items: Vec<ArtifactJson> = all.iter().map(ArtifactJson::from).collect();
    tell(json, &items, || listed(&all, SystemTime::now()))
}

fn listed(artifacts: &[Artifact], now: SystemTime) -> String {
    let row = |artifact: &Artifact| {
        let age = now.duration_since(artifact.used_at).unwrap_or_default().as_secs();
        let labels: Vec<String> = artifact.labels.iter().map(|label| format!("{AGENT_SCHEME}{label}")).collect();
        let title = artifact.title.as_deref().unwrap_or(&artifact.mime_type).to_owned();
        let (age, size) = (age_text(age), size_text(artifact.size_bytes));
        [artifact.id.to_string(), age, size, title, artifact.sessions.join(" "), labels.join(" ")]
    };
    let rows: Vec<_> = artifacts.iter().map(row).collect();
    table(["ID", "USED", "SIZE", "TITLE", "SESSIONS", ""], &rows, "no outputs are kept")
}

fn get(store: &ArtifactStore, id: &str, file: &Path, session: Option<&str>, raw: bool) -> Result<(), CliError> {
    let id = match (id.strip_prefix(AGENT_SCHEME), session) {
        (Some(_), None) => {
            return Err(CliError::usage("an agent's output has its name in its session", "say --session NAME"));
        }
        (Some(name), Some(session)) => store.agent(session, name)?.id,
        (None, _) => id.to_owned(),
    };
    let mut from = store.read(&id)?;
    if file == Path::new("-") {
        return output::copy(&mut from, raw);
    }
    let mut save = || io::copy(&mut from, &mut File::create(file)?);
    save().map(drop).map_err(|source| CliError::Save { path: file.to_owned(), source })
}

fn put(store: &ArtifactStore, arguments: &ArtifactPut) -> Result<(), CliError> {
    let cannot_read = |source| CliError::Read { path: arguments.file.clone(), source };
    let mut from: Box<dyn io::Read> = match arguments.file.as_path() == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(cellar_core::files::open_input(&arguments.file).map_err(cannot_read)?),
    };
    let mut writer = store.writer(&arguments.session)?;
    let mut piece = vec![0; 256 << 10];
    loop {
        match from.read(&mut piece).map_err(cannot_read)? {
            0 => break,
            length => writer.write(&piece[..length])?,
        }
    }
    let artifact = writer.finish(Description {
        mime_type: arguments.mime_type.as_deref().unwrap_or(MIME_TYPE),
        title: arguments.title.as_deref(),
    })?;
    tell(arguments.json, &ArtifactJson::from(&artifact), || artifact.uri() + "\n")?;
    settled(store);
    Ok(())
}

/// Waits for a moment until the remote store has received what was kept, and reports what it has not.
pub(crate) fn settled(store: &ArtifactStore) {
    if let Ok(left @ 1..) = store.settle(SETTLED_WITHIN) {
        tell_left(left);
    }
}

fn tell(json: bool, value: &impl serde::Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
    match json {
        true => output::print_json(value),
        false => output::print(&text()),
    }
}
