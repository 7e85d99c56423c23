//! The server of one tenant, in a process that may start no program and make no connection: see `workers`.
//!
//! Connections come over its standard input, a socket; the first of them carries the calls of its cells, which the process in
//! front answers, and notes.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    sync::Arc,
};

use axum_core::body::Body;
use cellar_bridges::{Afar, Doors, Notes};
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

use super::{CALLS, CONNECTION, Heard, Say, VISIT};
use crate::{
    configuration::{ConfineError, Confined, Isolation, ServeError, ServerConfig},
    http::{
        Respond, State,
        body::{Accompanied, Unwanted},
    },
    local::Local,
    tenant::Tenant,
};

/// The flag that names the tenant of a worker.
pub(crate) const WORKER: &str = "worker";
/// The variable that names the folder for its temporary files.
pub(crate) const FOLDER: &str = "CELLAR_WORKER_FOLDER";
/// Connections that wait to be served, and notes that wait in each direction.
const WAITING_MAX: usize = 64;
/// The largest niceness that a weight is.
const NICE_MAX: i32 = 15;

/// The niceness of a weight where the largest is this: with each step the kernel gives a process four fifths of the time.
fn niceness(weight: u32, heaviest: u32) -> i32 {
    let (own, heaviest) = (f64::from(weight.max(1)), f64::from(heaviest));
    let is_more = |nice: &i32| heaviest * 0.8_f64.powi(*nice) <= own * 1.125;
    (0..NICE_MAX).find(is_more).unwrap_or(NICE_MAX)
}

impl ServerConfig {
    /// Makes this process the worker of a tenant, for good. As [`ServerConfig::confine`], in narrower bounds.
    ///
    /// # Errors
    /// There is no such tenant, no folder was named, or as with [`ServerConfig::confine`].
    pub fn confine_worker(&mut self, tenant: &str) -> Result<Confined, ConfineError> {
        let folder =
            std::env::var_os(FOLDER).map(PathBuf::from).ok_or_else(|| io::Error::other("no folder was named"))?;
        let heaviest = self.tenants.iter().map(|tenant| tenant.weight).max().unwrap_or(1);
        self.tenants.retain(|kept| kept.name == tenant);
        self.oauth = None;
        self.traces = None;
        self.tokens = None;
        self.own_tokens.clear();
        let kept = self.tenants.first_mut().ok_or_else(|| io::Error::other("there is no such tenant"))?;
        // What models say is counted where they are asked.
        kept.quota.model_tokens_per_day = None;
        let nice = niceness(kept.weight, heaviest);
        if nice > 0 {
            rustix::process::nice(nice).map_err(io::Error::from)?;
        }
        self.confine_for_tenant(&folder)
    }
}

/// Serves a tenant until the process in front stops this one. Its standard input is the socket to that process.
///
/// # Errors
/// The process in front is gone before anything was served, or as with [`Server::open`](crate::Server::open).
pub async fn serve_worker(
    mut config: ServerConfig,
    isolation: Isolation,
    doors: Arc<dyn Doors>,
) -> Result<(), ServeError> {
    let failed = |source| ServeError::Worker(source);
    config.worker = None;
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let Some((CALLS, _, Some(calls))) = cellar_worker::take(&control) else {
        return Err(ServeError::Worker(io::ErrorKind::UnexpectedEof.into()));
    };
    let calls = stream(calls).map_err(failed)?;
    let ((to_say, waiting), (hearing, mut heard)) = (mpsc::channel(WAITING_MAX), mpsc::channel(WAITING_MAX));
    let (afar, driver) = Afar::connect(calls, Notes { to_say: waiting, heard: hearing }).await.map_err(failed)?;
    let stop = Arc::new(Notify::new());
    let over = stop.clone();
    tokio::spawn(async move {
        // Without the process in front there is nobody to serve.
        let _ = driver.await;
        over.notify_one();
    });
    while let Some(note) = heard.recv().await {
        if let Some(Say::Tokens(tokens)) = word(&note) {
            config.own_tokens = tokens;
            break;
        }
    }
    let server = Local::open(config, isolation, doors, Some(afar.clone()))?;
    let (connections, to_serve) = mpsc::channel(WAITING_MAX);
    let over = stop.clone();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        // Connections are made on it.
        let _on_it = runtime.enter();
        while let Some((letter, number, descriptor)) = cellar_worker::take(&control) {
            let Some(descriptor) = descriptor else { continue };
            if letter == VISIT {
                if let Err(error) = afar.visit(number, descriptor) {
                    tracing::warn!(%error, "a client of an agent's session was not taken");
                }
            } else if letter == CONNECTION && connections.blocking_send(descriptor).is_err() {
                return;
            }
        }
        over.notify_one();
    });
    say(&to_say, &Heard::Ready).await;
    tokio::spawn(listen(server.state.clone(), heard, to_say, stop.clone()));
    let served = accept(server.clone(), to_serve);
    server.serve(served, std::future::pending(), stop.notified(), async {}).await;
    Ok(())
}

fn word(note: &str) -> Option<Say> {
    serde_json::from_str(note).ok()
}

/// Carries out the messages of the process in front.
async fn listen(state: Arc<State>, mut heard: mpsc::Receiver<String>, to_say: mpsc::Sender<String>, stop: Arc<Notify>) {
    while let Some(note) = heard.recv().await {
        match word(&note) {
            Some(Say::Tokens(tokens)) => state.access.replace(tokens),
            Some(Say::Draining(is_draining)) => state.lifecycle.set_draining(is_draining),
            Some(Say::Heed) => say(&to_say, &Heard::Heeded).await,
            Some(Say::Leave) => {
                let leaves = state.tenants.values().all(|tenant| is_idle(tenant));
                say(&to_say, &Heard::Leaving(leaves)).await;
                if leaves {
                    stop.notify_one();
                }
            }
            Some(Say::Stop) => stop.notify_one(),
            None => {}
        }
    }
}

async fn say(notes: &mpsc::Sender<String>, word: &Heard) {
    if let Ok(note) = serde_json::to_string(word) {
        // Whoever is gone hears nothing.
        let _ = notes.send(note).await;
    }
}

/// Returns true if ending this process would lose nothing of a tenant: no cell runs, and all open sessions are stored.
fn is_idle(tenant: &Tenant) -> bool {
    let is_stored = |name: &str| tenant.hub.session(name).is_ok_and(|entry| entry.is_stored());
    tenant.hub.sessions().iter().all(|(name, runs)| runs.is_empty() && is_stored(name))
}

fn stream(descriptor: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

/// Serves the incoming connections.
async fn accept(server: Local, mut connections: mpsc::Receiver<OwnedFd>) {
    let mut served = JoinSet::new();
    let mut over = std::pin::pin!(server.state.lifecycle.ended());
    loop {
        let descriptor = tokio::select! {
            () = &mut over => break,
            descriptor = connections.recv() => descriptor,
        };
        while served.try_join_next().is_some() {}
        match descriptor.map(stream) {
            Some(Ok(stream)) => drop(served.spawn(serve(server.clone(), stream))),
            Some(Err(error)) => tracing::warn!(%error, "a connection was not taken"),
            // What runs is drained first.
            None => {
                over.await;
                break;
            }
        }
    }
    while served.join_next().await.is_some() {}
}

async fn serve(server: Local, stream: tokio::net::UnixStream) {
    let over = server.state.lifecycle.ended();
    let service = service_fn(move |request: Request<Incoming>| {
        let router = server.router.clone();
        let request = request.map(|body| Body::new(Accompanied::new(body, Unwanted)));
        async move { Ok::<_, std::convert::Infallible>(router.respond(request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = over => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_less_weight_is_nicer() {
        assert_eq!(
            [(100, 100), (90, 100), (50, 100), (25, 100), (1, 10_000), (0, 0)].map(|(own, most)| niceness(own, most)),
            [0, 0, 3, 6, 15, 0]
        );
    }
}
