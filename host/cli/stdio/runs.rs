//! One run, followed to its end in a task of its own.

use std::sync::Arc;

use cellar_engine::{Cell, EventKind, HostConfig, Run, RunResult, Session};
use futures::StreamExt;
use tokio::sync::{mpsc, watch};

use super::{
    finished::{Finished, Kept},
    state::{self, Ended},
};
use crate::{
    report::CliError,
    setup,
    wire::{Answer, EventJson, ResultJson},
};

/// A run that was accepted.
pub(super) struct Task {
    /// The caller's name for it.
    pub(super) id: String,
    /// Of the request.
    pub(super) line: u64,
    pub(super) session: Session,
    pub(super) cells: Vec<Cell>,
    pub(super) keep_going: bool,
    pub(super) host: Arc<HostConfig>,
    /// Turns true when the run is to stop.
    pub(super) cancelled: watch::Receiver<bool>,
    /// Turns true when the caller will answer nothing more.
    pub(super) over: watch::Receiver<bool>,
    pub(super) answers: mpsc::Sender<Answer>,
    /// Where it is kept when it has ended.
    pub(super) finished: Arc<Finished>,
}

impl Task {
    /// Runs the cells and tells all that happens.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the run.
    pub(super) async fn follow(mut self) -> Ended {
        let last = match self.start().await {
            Ok(run) => self.tell(run).await,
            Err(error) => Some(Answer::Error { id: Some(self.id.clone()), line: self.line, error: error.refusal() }),
        };
        if let Some(last) = last {
            // Nobody is left to be told that it cannot be told.
            let _ = self.answers.send(last).await;
        }
        Ended::Run(self.id)
    }

    async fn start(&mut self) -> Result<Run, CliError> {
        let languages = setup::languages_of(&self.cells).into_iter();
        setup::make_ready(&self.host, languages.map(|language| self.session.guest(language)).collect()).await?;
        let run = self.session.run(std::mem::take(&mut self.cells))?;
        Ok(if self.keep_going { run.keep_going() } else { run })
    }

    /// Tells the events, and gives the last line; none when nobody listens.
    async fn tell(&mut self, mut run: Run) -> Option<Answer> {
        let mut result = RunResult::with_policy(self.session.output_policy());
        let mut asked = Vec::new();
        let (mut is_cancelled, mut is_over) = (false, false);
        loop {
            let event = tokio::select! {
                event = run.next() => event,
                true = turned(&mut self.cancelled), if !is_cancelled => {
                    is_cancelled = true;
                    run.cancel();
                    continue;
                }
                true = turned(&mut self.over), if !is_over => {
                    is_over = true;
                    asked.drain(..).for_each(|id: String| self.end_input(&id));
                    continue;
                }
            };
            let Some(event) = event else { break };
            result.apply(&event);
            match &event.kind {
                EventKind::InputRequest { request_id, .. } if is_over => self.end_input(request_id),
                EventKind::InputRequest { request_id, .. } => asked.push(request_id.clone()),
                _ => {}
            }
            let told = Answer::Event { id: self.id.clone(), event: EventJson::from(&event) };
            self.answers.send(told).await.ok()?;
        }
        let json = Box::new(ResultJson::from(&result));
        self.keep(result).await;
        Some(Answer::Result { id: self.id.clone(), result: json })
    }

    /// Keeps what the run came to, before its caller can ask for it.
    async fn keep(&self, result: RunResult) {
        let session = self.session.clone();
        let artifacts = state::on_a_thread(move || Ok(session.artifacts()?)).await;
        self.finished.keep(&self.id, Kept { result, artifacts: artifacts.ok() });
    }

    fn end_input(&self, request_id: &str) {
        // It may have been answered, or its cell may have ended.
        let _ = self.session.end_input(request_id);
    }
}

/// Waits until it turns true; forever when it cannot any more.
async fn turned(flag: &mut watch::Receiver<bool>) -> bool {
    if flag.wait_for(|value| *value).await.is_err() {
        std::future::pending::<()>().await;
    }
    true
}
