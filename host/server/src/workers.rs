//! A process for each tenant, in front of which this one stands.
//!
//! ```text
//! clients ──► this process ── a connection for each request under way ──► worker of a tenant: a server of this one tenant
//!             tokens, bridges ◄── calls of cells, notes ────────────────► no sockets, no programs, no other tenant's files
//! ```
//!
//! This process determines the tenant of a request, and forwards the request unread. The worker checks the token again,
//! and knows only those of its tenant. So every interface works in the worker as it does without one. Workers start on
//! demand, and exit when they are idle for a while: their sessions sleep in the store. Read [`Worker::send`] first.

mod inside;
mod look;
mod pass;
mod start;

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum_core::body::Body;
use cellar_bridges::{ArtifactsAfar, HostBridges};
use cellar_core::sync::lock;
use cellar_worker::Recipe;
use http::StatusCode;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::{
    access::{Token, now},
    e2b,
    http::State,
    problem::Problem,
    tenant::{self, Quotas, SAVE_TIMEOUT, on_a_thread},
};

pub use inside::serve_worker;

/// Interval of checks for idle workers.
const LOOK: Duration = Duration::from_secs(1);
/// Timeout of a worker's answer to `Leave`.
const WORD_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a worker's exit, during which its sessions are stored.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout of the exit of a worker that was lost.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a request waits for a permit for another worker.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a client may try again.
const RETRY: Duration = Duration::from_secs(1);
/// Connections to a worker that are kept for the next request.
const IDLE_CONNECTIONS_MAX: usize = 64;
/// Message tag of a connection.
pub(crate) const CONNECTION: u8 = b'c';
/// Message tag of the connection for calls and notes, which comes first of all.
pub(crate) const CALLS: u8 = b'b';
/// Message tag of a client of an agent's session; the number of the agent's call follows.
pub(crate) const VISIT: u8 = b'v';

/// Time that a worker may take to confirm a message.
const HEED_TIMEOUT: Duration = Duration::from_secs(2);

/// Message to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Say {
    /// The tokens of its tenant, from now on.
    Tokens(Vec<Token>),
    /// Sets whether it takes no new work.
    Draining(bool),
    /// Request to confirm all earlier messages.
    Heed,
    /// Request to exit, if the worker is idle.
    Leave,
    /// Request to take no new work, let its runs end, and exit.
    Stop,
}

/// Message of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Heard {
    /// It answers requests.
    Ready,
    /// Confirmation of all earlier messages.
    Heeded,
    /// Answer to `Leave`: true if the worker exits.
    Leaving(bool),
}

/// The workers of a server.
pub(crate) struct Workers {
    by_tenant: BTreeMap<String, Arc<Worker>>,
    room: Arc<Semaphore>,
    idle_after: Duration,
    /// True when the server ends: no worker is started any more.
    is_stopping: AtomicBool,
    state: Arc<State>,
}

/// The worker of a tenant, whether it runs or not.
pub(crate) struct Worker {
    pub(crate) name: String,
    store: PathBuf,
    recipe: Recipe,
    bridges: HostBridges,
    /// Remote store of its artifacts.
    artifacts: Option<ArtifactsAfar>,
    /// Quota of models for its cells.
    models: Quotas,
    /// Tokens of this process for requests to the worker.
    own: OwnTokens,
    slot: tokio::sync::Mutex<Option<Arc<Running>>>,
    /// End of the first of its sessions, in seconds since the Unix epoch. No session ends while the worker does not
    /// run. The outer `None` means that the store must be read.
    first_end: Mutex<Option<Option<u64>>>,
}

/// Tokens that a worker takes from this process.
struct OwnTokens {
    /// Tokens for clients that this process has authenticated, with the scopes `run` and `read`.
    run: (String, Token),
    read: (String, Token),
    /// The same, with the scope `approve` besides.
    run_approve: (String, Token),
    read_approve: (String, Token),
    /// Token for requests of this process itself.
    look: (String, Token),
}

/// A worker that runs.
struct Running {
    control: Arc<UnixStream>,
    notes: mpsc::Sender<String>,
    idle: Mutex<Vec<SendRequest<Body>>>,
    under_way: AtomicUsize,
    used: Mutex<Instant>,
    gone: watch::Receiver<bool>,
    /// Sender of the worker's answer to `Leave`.
    leaving: Mutex<Option<oneshot::Sender<bool>>>,
    /// Count of its confirmations.
    heeded: watch::Sender<u64>,
}

/// Request that a worker is serving. The worker does not exit while this lives.
pub(crate) struct UnderWay(Arc<Running>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl UnderWay {
    fn is_gone(&self) -> bool {
        *self.0.gone.borrow()
    }
}

/// Returns the refusal of requests that a worker was serving when it ended.
pub(crate) fn lost() -> Problem {
    let detail =
        "the process of this tenant has ended: what ran in it is lost, and its sessions are as they were stored last";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "worker_lost", detail).after(RETRY)
}

impl Running {
    fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    /// Returns true if it has closed its control connection: it has ended, or is about to. A worker that serves keeps
    /// that open.
    fn is_ending(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(recv(&self.control, &mut [0_u8; 1][..], flags), Ok((_, 0)) | Err(Errno::CONNRESET))
    }

    fn say(&self, word: &Say) {
        if let Ok(note) = serde_json::to_string(word)
            && self.notes.try_send(note).is_err()
        {
            tracing::warn!("a worker does not listen");
        }
    }

    /// Returns a connection that carries no request.
    async fn connection(&self) -> Result<SendRequest<Body>, Problem> {
        loop {
            let Some(mut kept) = lock(&self.idle).pop() else { break };
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let (mine, theirs) = UnixStream::pair().map_err(|error| Problem::internal(&error, "worker"))?;
        cellar_worker::pass(&self.control, CONNECTION, 0, Some(OwnedFd::from(theirs))).map_err(|error| {
            tracing::warn!(%error, "a worker takes no connection");
            lost()
        })?;
        let stream = mine.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(mine));
        let stream = stream.map_err(|error| Problem::internal(&error, "worker"))?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|_| lost())?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    fn keep(&self, sender: SendRequest<Body>) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(sender);
        }
    }

    async fn ended(&self) {
        let mut gone = self.gone.clone();
        // Who would tell is gone as well.
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

impl Workers {
    pub(crate) fn get(&self, tenant: &str) -> Option<&Arc<Worker>> {
        self.by_tenant.get(tenant)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.by_tenant.values()
    }

    /// Returns the worker of the tenant that has the sandbox of this id.
    pub(crate) fn of_sandbox(&self, id: &str) -> Option<&Arc<Worker>> {
        let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        self.all().find(|worker| is_plain && e2b::folder_in(&worker.store).join(id).is_file())
    }

    /// Sends all running workers their tokens, and whether new work is refused, and waits for their confirmations. All
    /// later requests see the change, except those to a worker that does not confirm within `HEED_TIMEOUT`.
    pub(crate) async fn tell(&self, is_draining: bool) {
        for worker in self.all() {
            let Some(running) = worker.slot.lock().await.clone() else { continue };
            let mut heeded = running.heeded.subscribe();
            heeded.mark_unchanged();
            running.say(&Say::Tokens(worker.tokens(&self.state)));
            running.say(&Say::Draining(is_draining));
            running.say(&Say::Heed);
            let heard = async {
                tokio::select! {
                    _ = heeded.changed() => {}
                    () = running.ended() => {}
                }
            };
            if tokio::time::timeout(HEED_TIMEOUT, heard).await.is_err() {
                tracing::warn!(worker.name, "a worker has not heard yet which tokens there are");
            }
        }
    }

    /// Stops all workers: each lets its runs end and stores its sessions. None is started any more.
    pub(crate) async fn drained(&self) {
        let within = self.state.lifecycle.drain.saturating_add(SAVE_TIMEOUT);
        self.save().await;
        self.is_stopping.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for worker in self.all() {
            // It is still asked meanwhile: results are read, and new work is refused.
            if let Some(running) = worker.slot.lock().await.clone() {
                running.say(&Say::Stop);
                all.push(running);
            }
        }
        let ended = async {
            for running in &all {
                running.ended().await;
            }
        };
        if tokio::time::timeout(within, ended).await.is_err() {
            tracing::error!("not every worker has ended in time; their sessions have what was stored last");
        }
    }

    /// Saves the usage of models.
    async fn save(&self) {
        let models: Vec<Quotas> = self.all().map(|worker| worker.models.clone()).collect();
        let saved = tokio::task::spawn_blocking(move || models.iter().for_each(Quotas::save));
        // It does not panic.
        let _ = saved.await;
    }

    /// Stops the worker that has been idle for longest, if there is one.
    async fn make_room(&self) {
        let mut idle: Vec<(Instant, &Arc<Worker>)> = Vec::new();
        for worker in self.all() {
            // One that is starting or going is not idle.
            let Ok(slot) = worker.slot.try_lock() else { continue };
            if let Some(running) = slot.as_ref().filter(|running| running.under_way.load(Ordering::SeqCst) == 0) {
                idle.push((*lock(&running.used), worker));
            }
        }
        idle.sort_by_key(|(used, _)| *used);
        for (_, worker) in idle {
            if worker.leave(Duration::ZERO).await {
                return;
            }
        }
    }
}

impl Worker {
    /// Returns the worker with a request under way, and starts it if it does not run.
    async fn running(&self, workers: &Workers) -> Result<UnderWay, Problem> {
        let mut slot = self.slot.lock().await;
        if let Some(running) = slot.as_ref().filter(|running| running.is_ending()) {
            // What it holds is free when it has ended.
            let _ = tokio::time::timeout(END_TIMEOUT, running.ended()).await;
        }
        let running = match slot.as_ref().filter(|running| !running.is_gone()) {
            Some(running) => running.clone(),
            None if workers.is_stopping.load(Ordering::SeqCst) => return Err(Problem::draining()),
            None => {
                if workers.room.available_permits() == 0 {
                    workers.make_room().await;
                }
                let room = tokio::time::timeout(ROOM_TIMEOUT, workers.room.clone().acquire_owned()).await;
                let full = || {
                    let detail = "as many tenants have a process as may, and all of them are at work";
                    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "workers", detail).after(RETRY)
                };
                let room = room.map_err(|_| full())?.map_err(|_| full())?;
                let running = self.start(&workers.state, room).await?;
                *lock(&self.first_end) = None;
                slot.insert(running).clone()
            }
        };
        running.under_way.fetch_add(1, Ordering::SeqCst);
        Ok(UnderWay(running))
    }

    /// Stops the worker, if it was idle for `idle_after` and agrees; returns true if it has exited. Requests wait
    /// meanwhile.
    async fn leave(&self, idle_after: Duration) -> bool {
        let mut slot = self.slot.lock().await;
        let Some(running) = slot.clone() else { return false };
        let is_used = running.under_way.load(Ordering::SeqCst) > 0 || lock(&running.used).elapsed() < idle_after;
        if is_used && !running.is_gone() {
            return false;
        }
        if !running.is_gone() {
            let (sender, answer) = oneshot::channel();
            *lock(&running.leaving) = Some(sender);
            running.say(&Say::Leave);
            if !matches!(tokio::time::timeout(WORD_TIMEOUT, answer).await, Ok(Ok(true))) {
                *lock(&running.used) = Instant::now();
                return false;
            }
            if tokio::time::timeout(LEAVE_TIMEOUT, running.ended()).await.is_err() {
                tracing::warn!(tenant = self.name, "a worker takes long to go");
            }
        }
        *slot = None;
        true
    }
}

impl Worker {
    /// Starts the worker if it does not run and one of its sessions is due to end, so that it removes the session.
    async fn end_sessions(self: &Arc<Worker>, workers: &Arc<Workers>) {
        if !matches!(self.slot.try_lock(), Ok(slot) if slot.is_none()) {
            return;
        }
        let known = *lock(&self.first_end);
        let first = match known {
            Some(first) => first,
            None => {
                let store = self.store.clone();
                let Ok(first) = on_a_thread(move || tenant::first_end(&store)).await else { return };
                *lock(&self.first_end) = Some(first);
                first
            }
        };
        if first.is_some_and(|end| end <= now()) {
            let (worker, workers) = (self.clone(), workers.clone());
            // One that takes its time holds up no other.
            tokio::spawn(async move {
                if let Err(problem) = worker.running(&workers).await {
                    let problem = problem.words();
                    tracing::warn!(tenant = worker.name, problem, "sessions whose time is over are not removed yet");
                }
            });
        }
    }
}

impl Workers {
    /// Stops idle workers, and starts those that have sessions to remove. Does not return.
    pub(crate) async fn keep(self: &Arc<Workers>) {
        let workers = self;
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            workers.save().await;
            for worker in workers.all() {
                // One that is starting or going is not looked at.
                let is_idle = match worker.slot.try_lock() {
                    Ok(slot) => slot.as_ref().is_some_and(|running| {
                        let is_unused = running.under_way.load(Ordering::SeqCst) == 0;
                        running.is_gone() || (is_unused && lock(&running.used).elapsed() >= workers.idle_after)
                    }),
                    Err(_) => false,
                };
                if is_idle {
                    worker.leave(workers.idle_after).await;
                }
                if !workers.is_stopping.load(Ordering::SeqCst) {
                    worker.end_sessions(workers).await;
                }
            }
        }
    }
}

impl Worker {
    /// Returns the tokens that it accepts.
    fn tokens(&self, state: &State) -> Vec<Token> {
        let OwnTokens { run, read, run_approve, read_approve, look } = &self.own;
        let own = [run, read, run_approve, read_approve, look].map(|(_, token)| token.clone());
        state.access.tokens().of(&self.name).cloned().chain(own).collect()
    }
}
