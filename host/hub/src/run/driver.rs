//! Driver of a run: waits for its turn, polls the run, and wakes its readers.

use std::sync::Arc;

use cellar_core::sync::lock;
use cellar_engine::{Event, EventKind, Run, RunResult};
use futures::StreamExt;

use super::{RunHandle, Shared};
use crate::{answers::Answerer, error::HubError, journal::ELSEWHERE_BYTES_MAX, journals::UnderWay, turn::Turn};

/// Guard that ends the stream of a run, whatever happens to its driver.
pub(crate) struct Ending(Arc<Shared>, #[expect(dead_code, reason = "it counts while it lives")] UnderWay);

impl Ending {
    pub(crate) fn of(run: &RunHandle) -> Ending {
        Ending(run.0.clone(), run.0.account.begin())
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.end.get().is_none() {
            let seq = self.0.journal().next_seq();
            let kind = EventKind::RunFinished { is_error: true, kept: None };
            self.0.push(Arc::new(Event { seq, kind }));
            self.0.finish(Ok(RunResult::default()));
        }
        self.0.tell();
    }
}

/// Wake-ups of the readers that wait for the events of a run. They are woken when no further event is ready, so that
/// events that come together are delivered together.
#[derive(Debug, Default)]
struct Telling {
    /// True if there are unannounced events other than starts of the run or of cells.
    is_urgent: bool,
    /// True if the wake-up was postponed until this thread has done its other work: mostly the cell has ended by then.
    is_put_off: bool,
}

impl Telling {
    fn note(&mut self, kind: &EventKind) {
        self.is_urgent |= !matches!(kind, EventKind::RunStarted { .. } | EventKind::CellStarted { .. });
    }

    /// Waits for the next item; wakes the readers before it suspends.
    async fn until<T>(&mut self, shared: &Shared, next: impl Future<Output = T>) -> T {
        let mut next = std::pin::pin!(next);
        std::future::poll_fn(|cx| {
            let next = next.as_mut().poll(cx);
            if next.is_pending() {
                if self.is_urgent || self.is_put_off {
                    *self = Telling::default();
                    shared.tell();
                } else if shared.has_untold() {
                    self.is_put_off = true;
                    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
                }
            }
            next
        })
        .await
    }
}

/// Drives a run to its end, when its turn has come.
pub(crate) async fn drive(
    ending: Ending,
    prepared: impl Future<Output = Result<Run, HubError>> + Send,
    mut turn: Turn,
    answerer: Option<Answerer>,
    is_durable: bool,
) {
    let shared = &*ending.0;
    turn.come().await;
    let mut run = match prepared.await {
        Ok(run) => run,
        Err(error) => return shared.finish(Err(error)),
    };
    let _ = shared.canceller.set(run.canceller());
    if *shared.cancelled.borrow() {
        run.cancel();
    }
    let mut driver = Driver {
        shared,
        answerer: answerer.as_ref(),
        is_durable,
        turn: Some(turn),
        asked: Vec::new(),
        is_unanswered: false,
        result: RunResult::with_policy(shared.session.output_policy()),
        telling: Telling::default(),
    };
    driver.follow(&mut run).await;
}

/// The state of a run that is driven.
struct Driver<'a> {
    shared: &'a Shared,
    answerer: Option<&'a Answerer>,
    /// Its state is stored before its end is told.
    is_durable: bool,
    /// Position in the session's queue until the run has begun; later requests to the session wait for that.
    turn: Option<Turn>,
    /// Requests for input that its cells have made.
    asked: Vec<String>,
    /// True when nobody answers them any more.
    is_unanswered: bool,
    result: RunResult,
    telling: Telling,
}

impl Driver<'_> {
    /// Polls the run to its end.
    async fn follow(&mut self, run: &mut Run) {
        let (shared, answerer) = (self.shared, self.answerer);
        let mut elsewhere_left = ELSEWHERE_BYTES_MAX;
        let mut is_deserted = false;
        let unanswered = async {
            match answerer {
                Some(answerer) => answerer.ended().await,
                None => std::future::pending().await,
            }
        };
        let (mut deserted, mut unanswered) = (std::pin::pin!(shared.deserted()), std::pin::pin!(unanswered));
        loop {
            let next = async {
                shared.room().await;
                run.next().await
            };
            let event = tokio::select! {
                biased;
                () = &mut deserted, if !is_deserted => {
                    is_deserted = true;
                    run.cancel();
                    continue;
                }
                () = &mut unanswered, if !self.is_unanswered => {
                    self.is_unanswered = true;
                    // Each may have been answered, or its cell may have ended.
                    self.asked.drain(..).for_each(|request| drop(shared.session.end_input(&request)));
                    continue;
                }
                event = self.telling.until(shared, next) => event,
            };
            let Some(event) = event else { return };
            self.take_in(&event).await;
            shared.owe(run.take_unread());
            shared.push(Arc::new(event));
            shared.make_room(&mut elsewhere_left).await;
        }
    }

    /// Updates the state of the run by an event.
    async fn take_in(&mut self, event: &Event) {
        self.result.apply(event);
        self.telling.note(&event.kind);
        match &event.kind {
            EventKind::InputRequest { request_id, .. } if self.is_unanswered => {
                drop(self.shared.session.end_input(request_id));
            }
            EventKind::InputRequest { request_id, .. } => self.asked.push(request_id.clone()),
            EventKind::CellStarted { cell, .. } => {
                lock(&self.shared.cells).push(*cell);
                self.turn = None;
            }
            EventKind::CellFinished { .. } => self.turn = None,
            EventKind::RunFinished { .. } => {
                if self.is_durable {
                    self.shared.tell();
                    if let Err(error) = self.shared.session.save_result().await {
                        tracing::warn!(run = self.shared.id, %error, "a run ended, and its state was not stored");
                    }
                }
                let mut result = std::mem::take(&mut self.result);
                if result.images().next().is_some() {
                    let fitted = tokio::task::spawn_blocking(move || {
                        result.fit_images();
                        result
                    });
                    // It fails when the runtime ends.
                    result = fitted.await.unwrap_or_default();
                }
                // Before the last event is read, so that whoever has read it finds the id free.
                self.shared.finish(Ok(result));
            }
            _ => {}
        }
    }
}
