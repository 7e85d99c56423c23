//! A server: its tenants in this process, or workers in front of which it stands.

use std::{sync::Arc, time::Duration};

use axum_core::{body::Body, response::Response};
use cellar_bridges::Doors;
use http::Request;
use tokio::net::TcpListener;

use crate::{
    access::{TokenError, TokenFile},
    configuration::{Isolation, ServeError, ServerConfig},
    http::{Listening, Respond, Traces, accept},
    local::Local,
    workers::Workers,
};

/// Interval of looks at the file of tokens.
const TOKENS_LOOK: Duration = Duration::from_millis(500);

/// A server. A cheap handle.
#[derive(Clone)]
pub struct Server {
    local: Local,
    /// Processes of tenants, where each has one of its own: then there are none in this one.
    workers: Option<Arc<Workers>>,
    listening: Arc<Listening>,
    /// Mark of the file of tokens before it was read.
    tokens_mark: Option<(u64, u64, i64)>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("tenants", &self.local.state.tenants).finish_non_exhaustive()
    }
}

impl Respond for Server {
    async fn respond(&self, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        self.local.state.access.learn_keys(&parts.headers).await;
        let (parts, body) = match &self.workers {
            Some(workers) => match workers.answer(parts, body).await {
                Ok(response) => return response,
                Err(own) => own,
            },
            None => (parts, body),
        };
        self.local.router.answer(parts, body).await
    }
}

impl Server {
    /// Makes a server ready in a process for which `isolation` holds. Nothing is answered before [`Server::serve`].
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, at once; the host or a store fails.
    pub fn open(config: ServerConfig, isolation: Isolation, doors: Arc<dyn Doors>) -> Result<Server, ServeError> {
        let worker = config.worker.clone().map(|worker| (worker, config.tenants.clone()));
        let (traces, connections_max) = (config.traces.clone(), config.connections_max);
        let tokens_mark = config.tokens.as_ref().and_then(TokenFile::mark);
        let local = Local::open(config, isolation, doors.clone(), None)?;
        let state = &local.state;
        let workers =
            worker.map(|(worker, tenants)| Workers::new(&worker, &tenants, &local.host, &doors, state.clone()));
        let workers = workers.transpose()?.map(Arc::new);
        let listening = Listening { state: state.clone(), traces: Traces::new(traces), connections_max };
        Ok(Server { local, workers, listening: Arc::new(listening), tokens_mark })
    }

    /// Answers requests until `stop` comes; then it takes no new work, gives runs the time that they may take, stores every
    /// session, and returns.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let served = accept(self.listening.clone(), self.clone(), listener);
        let Some(workers) = &self.workers else {
            return self.local.serve(served, self.keep_tokens(), stop, async {}).await;
        };
        let stop = async {
            stop.await;
            // By the workers first: a client that sees that this process is not ready any more is refused by all.
            workers.tell(true).await;
        };
        let beside = async {
            tokio::select! {
                () = workers.keep() => {}
                () = self.keep_tokens() => {}
            }
        };
        self.local.serve(served, beside, stop, workers.drained()).await;
    }

    /// Takes the tokens that the file of tokens has as soon as it changes. Does not return.
    async fn keep_tokens(&self) {
        let access = &self.local.state.access;
        let mut tick = tokio::time::interval(TOKENS_LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut known = self.tokens_mark;
        loop {
            tick.tick().await;
            let mark = access.mark();
            if mark == known {
                continue;
            }
            known = mark;
            match self.reload() {
                Ok(()) => self.tell_workers().await,
                Err(error) => tracing::error!(%error, "the tokens stay as they were"),
            }
        }
    }

    /// Takes the tokens that the file of tokens has now. Blocks.
    ///
    /// # Errors
    /// The file cannot be read; then the tokens stay as they are.
    pub fn reload(&self) -> Result<(), TokenError> {
        self.local.state.access.reload()
    }

    /// Sends workers the tokens that are taken now, and whether new work is.
    pub async fn tell_workers(&self) {
        if let Some(workers) = &self.workers {
            workers.tell(self.local.state.lifecycle.is_draining()).await;
        }
    }
}
