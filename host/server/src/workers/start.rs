//! Starting workers, and noticing their ends.

use std::{
    collections::BTreeMap,
    fs::File,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::{Duration, Instant},
};

use cellar_bridges::{Answers, Doors, HostBridges, Notes, Visits, answer_afar};
use cellar_config::Granted;
use cellar_core::sync::lock;
use cellar_worker::{Input, Process, Recipe};
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::{
    CALLS, Heard, OwnTokens, Running, Say, VISIT, Worker, Workers,
    inside::{FOLDER, WORKER},
};
use crate::{
    access::{NewToken, Scope, mint},
    configuration::{ConfineError, WorkerConfig},
    http::State,
    problem::Problem,
    tenant::{Quota, Quotas, TenantConfig},
};

/// Timeout of a worker's start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between the end of a worker's calls and its own.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Notes that wait to be read.
const NOTES_WAITING_MAX: usize = 64;
/// Variables of this program's environment that workers inherit: folders and the log filter.
const ENVIRONMENT: [&str; 11] = [
    "HOME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "FONTCONFIG_FILE",
    "FONTCONFIG_PATH",
    "CELLAR_LOG",
    "CELLAR_GUESTS",
    "CELLAR_CACHE",
];

impl WorkerConfig {
    /// Returns the recipe of a tenant's worker process.
    pub(crate) fn recipe(&self, tenant: &str) -> Recipe {
        let own = [format!("--{WORKER}"), tenant.to_owned()];
        Recipe {
            argv: self.argv.iter().cloned().chain(own).collect(),
            folder: None,
            environment: Vec::new(),
            inherit: ENVIRONMENT.map(str::to_owned).to_vec(),
            is_open: false,
            is_quiet: false,
            memory_bytes: self.memory_bytes,
        }
    }
}

impl Workers {
    /// Creates the workers of some tenants; none is started yet.
    ///
    /// # Errors
    /// The grants of a tenant cannot be used.
    pub(crate) fn new(
        config: &WorkerConfig,
        tenants: &[TenantConfig],
        host: &cellar_engine::Host,
        doors: &Arc<dyn Doors>,
        state: Arc<State>,
    ) -> Result<Workers, ConfineError> {
        let mut by_tenant = BTreeMap::new();
        for tenant in tenants {
            let file = tenant.overrides.file()?;
            let artifacts = cellar_config::artifacts_afar(&file.artifacts)?;
            let granted = Granted::new(&tenant.overrides, file)?;
            let quota = Quota { model_tokens_per_day: tenant.quota.model_tokens_per_day, ..Quota::default() };
            let counted = config.counts.join(&tenant.name);
            std::fs::create_dir_all(&counted)?;
            // What models say is counted where they are asked.
            let quotas = Quotas::open(quota, tenant.weight, host, &counted);
            let token = |scopes: &[Scope]| {
                let name = "this server".to_owned();
                mint(NewToken { tenant: tenant.name.clone(), name, scopes: scopes.to_vec(), lifetime: None })
            };
            let worker = Worker {
                name: tenant.name.clone(),
                store: tenant.store.clone(),
                recipe: config.recipe(&tenant.name),
                bridges: HostBridges::new(granted.bridges)
                    .with_token_budget(Arc::new(quotas.clone()))
                    .with_doors(doors.clone()),
                artifacts,
                own: OwnTokens {
                    run: token(&[Scope::Run]),
                    read: token(&[Scope::Read]),
                    run_approve: token(&[Scope::Run, Scope::Approve]),
                    read_approve: token(&[Scope::Read, Scope::Approve]),
                    look: token(&[Scope::Read, Scope::Admin, Scope::Metrics]),
                },
                models: quotas,
                slot: tokio::sync::Mutex::default(),
                first_end: Mutex::default(),
            };
            by_tenant.insert(tenant.name.clone(), Arc::new(worker));
        }
        Ok(Workers {
            by_tenant,
            room: Arc::new(Semaphore::new(config.count_max)),
            idle_after: config.idle_after,
            is_stopping: AtomicBool::new(false),
            state,
        })
    }
}

impl Worker {
    /// Starts the worker, and waits until it answers.
    pub(super) async fn start(&self, state: &State, room: OwnedSemaphorePermit) -> Result<Arc<Running>, Problem> {
        let began = Instant::now();
        let started = self.started(state, room);
        let started = tokio::time::timeout(START_TIMEOUT, started).await.unwrap_or_else(|error| Err(error.into()));
        let running = started.map_err(|error| Problem::internal(&error, "worker"))?;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(tenant = self.name, took_ms, "a worker has started");
        Ok(running)
    }

    async fn started(&self, state: &State, room: OwnedSemaphorePermit) -> std::io::Result<Arc<Running>> {
        // It is the only folder for temporary files that the worker may write in.
        let folder = tempfile::Builder::new().prefix("worker-").tempdir()?;
        let (control, their_control) = UnixStream::pair()?;
        let (calls, their_calls) = UnixStream::pair()?;
        cellar_worker::pass(&control, CALLS, 0, Some(OwnedFd::from(their_calls)))?;
        let control = Arc::new(control);
        let variables = [(FOLDER.to_owned(), folder.path().to_string_lossy().into_owned())];
        let input = Input::File(File::from(OwnedFd::from(their_control)));
        let process = cellar_worker::start(&self.recipe, &[], &variables, input).await?;
        calls.set_nonblocking(true)?;
        let calls = tokio::net::UnixStream::from_std(calls)?;
        let (notes, to_say) = mpsc::channel(NOTES_WAITING_MAX);
        let (hearing, mut heard) = mpsc::channel(NOTES_WAITING_MAX);
        let answers =
            Answers { bridges: self.bridges.clone(), artifacts: self.artifacts.clone(), visits: visits(&control) };
        let answering = answer_afar(answers, calls, Notes { to_say, heard: hearing });
        let (over, gone) = watch::channel(false);
        tokio::spawn(watch_over(self.name.clone(), process, answering, (folder, room, over)));
        let running = Arc::new(Running {
            control,
            notes,
            idle: Mutex::default(),
            under_way: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            gone,
            leaving: Mutex::default(),
            heeded: watch::channel(0).0,
        });
        running.say(&Say::Tokens(self.tokens(state)));
        running.say(&Say::Draining(state.lifecycle.is_draining()));
        let word = |note: &str| serde_json::from_str::<Heard>(note).ok();
        loop {
            let note = heard.recv().await.ok_or_else(|| std::io::Error::other("a worker ended before it was ready"))?;
            if matches!(word(&note), Some(Heard::Ready)) {
                break;
            }
        }
        let listening = Arc::downgrade(&running);
        tokio::spawn(async move {
            while let Some(note) = heard.recv().await {
                let Some(running) = listening.upgrade() else { return };
                match word(&note) {
                    Some(Heard::Leaving(leaves)) => {
                        if let Some(waiting) = lock(&running.leaving).take() {
                            // Whoever asked may have given up.
                            let _ = waiting.send(leaves);
                        }
                    }
                    Some(Heard::Heeded) => running.heeded.send_modify(|count| *count = count.wrapping_add(1)),
                    Some(Heard::Ready) | None => {}
                }
            }
        });
        Ok(running)
    }
}

/// Passes connections to an agent's interface on to the worker that asked for it.
fn visits(control: &Arc<UnixStream>) -> Visits {
    // A worker ends when its control is closed, whoever still answers its calls.
    let control = Arc::downgrade(control);
    Arc::new(move |number, visitor| {
        let control = control.upgrade().ok_or(std::io::ErrorKind::NotConnected)?;
        cellar_worker::pass(&control, VISIT, number, Some(OwnedFd::from(visitor.into_std()?)))
    })
}

/// Waits for the end of a worker; meanwhile it answers the worker's calls and forwards its log.
async fn watch_over(
    tenant: String,
    mut process: Process,
    answering: impl Future<Output = std::io::Result<()>> + Send + 'static,
    (folder, room, over): (TempDir, OwnedSemaphorePermit, watch::Sender<bool>),
) {
    if let Some(mut errors) = process.stderr.take() {
        tokio::spawn(async move { tokio::io::copy(&mut errors, &mut tokio::io::stderr()).await });
    }
    let ended = tokio::select! {
        ended = process.wait() => Ok(ended),
        answered = answering => match answered {
            // It closes its connection when it ends.
            Ok(()) => tokio::time::timeout(END_TIMEOUT, process.wait()).await.map_err(|_| "it makes no calls any more".to_owned()),
            Err(error) => Err(error.to_string()),
        },
    };
    match ended {
        Err(reason) => tracing::error!(tenant, reason, "a worker cannot be relied on, and is killed"),
        Ok(Ok(status)) if status.success() => tracing::info!(tenant, "a worker has gone"),
        Ok(Ok(_)) if process.held_too_much() => {
            tracing::error!(tenant, "a worker held more memory than `worker_memory_mib` says, and was ended");
        }
        Ok(Ok(status)) => tracing::error!(tenant, %status, "a worker was lost"),
        Ok(Err(error)) => tracing::error!(tenant, %error, "a worker was lost"),
    }
    drop(process);
    drop((folder, room));
    over.send_replace(true);
}
