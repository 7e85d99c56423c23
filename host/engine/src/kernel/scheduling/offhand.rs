//! Calls that can be answered at once: each is polled one time while its guest is suspended, before a task is made of it.
//!
//! An import runs on its guest's stack, where no bridge may run. So it hands the call over to `WayIn`, which polls the kernel on a stack
//! of its own. The import goes on as soon as the call has been polled: nothing is scheduled, and nobody is woken.
//!
//! A bridge that will have its answer in a moment, but not on this stack, says so ([`answers_soon`]): the kernel waits for that moment as for
//! an answer, and makes a task of the call afterwards.
//!
//! The kernel can do nothing else meanwhile. After two slow answers in a row the next calls become tasks at once, so that bridges which
//! compute much run in parallel to each other and to the kernel. A single slow answer may only have waited for its processor.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use cellar_core::sync::lock;
use tokio::time::{Sleep, sleep};

use crate::contract::bridge::{CallError, CallErrorKind, CallResult};

/// A call on its way to an answer.
pub(crate) type Job = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// Duration of a poll above which a bridge counts as slow.
const LONG: Duration = Duration::from_micros(200);
/// Calls that are not tried after two that took long.
const UNTRIED: u32 = 100;
/// Duration for which a kernel waits for a call that is answered soon.
const SOON: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1 });

thread_local! {
    /// True if the call that is polled on this thread will be answered soon.
    static IS_SOON: Cell<bool> = const { Cell::new(false) };
}

/// Says of the call that is polled on this thread that its answer comes in a moment, and wakes it.
pub fn answers_soon() {
    IS_SOON.set(true);
}

/// Slot in which an import of a kernel leaves a call and finds the result. `WayIn`, which polls the kernel, serves it.
#[derive(Default)]
pub(crate) struct Offhand(Mutex<Desk>);

#[derive(Default)]
struct Desk {
    hand: Hand,
    /// True if the last call that was tried took longer than [`LONG`].
    was_long: bool,
    /// Calls that will not be tried.
    untried: u32,
}

#[derive(Default)]
enum Hand {
    /// Nothing polls a call that is left here.
    #[default]
    Closed,
    Open,
    /// To be polled as soon as the guest is suspended.
    Asked(Job),
    /// It was polled, and is answered in a moment, or else needs more time.
    Soon(Job, Pin<Box<Sleep>>),
    /// It was polled, and needs more time.
    Waiting(Job),
    Answered(CallResult),
}

impl std::fmt::Debug for Offhand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offhand").finish_non_exhaustive()
    }
}

impl Desk {
    fn become_unless_soon(&mut self, hand: Hand) {
        if !matches!(self.hand, Hand::Soon(..)) {
            self.hand = hand;
        }
    }
}

impl Offhand {
    /// Has a call polled once. Returns its answer, or the call itself if that takes longer or the call cannot be tried now.
    ///
    /// # Cancel safety
    /// Dropping the future drops the call, now or when the kernel is polled next.
    pub(crate) async fn ask(&self, job: Job) -> Result<CallResult, Job> {
        {
            let mut desk = lock(&self.0);
            if let Some(untried) = desk.untried.checked_sub(1) {
                desk.untried = untried;
                return Err(job);
            }
            match desk.hand {
                Hand::Open => desk.hand = Hand::Asked(job),
                _ => return Err(job),
            }
        }
        // The guest is suspended here. Nobody needs to be woken: the kernel is polled again when the call has been.
        poll_fn(|_| {
            let mut desk = lock(&self.0);
            match std::mem::replace(&mut desk.hand, Hand::Open) {
                Hand::Waiting(job) => Poll::Ready(Err(job)),
                Hand::Answered(answer) => Poll::Ready(Ok(answer)),
                asked => {
                    desk.hand = asked;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Says that what is left here will be polled.
    pub(crate) fn open(&self) {
        lock(&self.0).become_unless_soon(Hand::Open);
    }

    /// Says that nothing will be polled any more.
    pub(crate) fn close(&self) {
        lock(&self.0).become_unless_soon(Hand::Closed);
    }

    /// Polls the call that was left here, if any. Returns the duration of the poll, though no more than [`LONG`]: a thread that has to
    /// wait for its processor meanwhile shall not hide what its guest uses. A bridge that panics fails its call alone.
    pub(crate) fn serve(&self, cx: &mut Context<'_>) -> Option<Duration> {
        let (mut job, moment) = {
            let mut desk = lock(&self.0);
            match std::mem::replace(&mut desk.hand, Hand::Open) {
                Hand::Asked(job) => (job, None),
                Hand::Soon(job, moment) => (job, Some(moment)),
                other => {
                    desk.hand = other;
                    return None;
                }
            }
        };
        let began = Instant::now();
        IS_SOON.set(false);
        let polled = catch_unwind(AssertUnwindSafe(|| match job.as_mut().poll(cx) {
            Poll::Ready(answer) => Hand::Answered(answer),
            Poll::Pending if moment.is_none() && !IS_SOON.get() => Hand::Waiting(job),
            Poll::Pending => {
                let mut moment = moment.unwrap_or_else(|| Box::pin(sleep(SOON)));
                let is_over = moment.as_mut().poll(cx).is_ready();
                if is_over { Hand::Waiting(job) } else { Hand::Soon(job, moment) }
            }
        }));
        let took = began.elapsed();
        let mut desk = lock(&self.0);
        let is_long = took > LONG;
        if is_long && desk.was_long {
            desk.untried = UNTRIED;
        }
        desk.was_long = is_long;
        desk.hand = polled.unwrap_or_else(|_| {
            tracing::error!("a bridge panicked");
            Hand::Answered(Err(panicked()))
        });
        // The kernel is polled again when the moment is over or the answer is there.
        if matches!(desk.hand, Hand::Soon(..)) { None } else { Some(took.min(LONG)) }
    }
}

/// Returns the error of a call whose bridge panicked.
pub(crate) fn panicked() -> CallError {
    CallError::new(CallErrorKind::Failed, "the host failed while answering the call")
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::contract::bridge::Response;

    /// Asks and serves a call as a kernel's poll would. Returns its answer, or the call if it needs longer.
    fn ask(offhand: &Offhand, job: Job) -> Option<Result<CallResult, Job>> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut asked = Box::pin(offhand.ask(job));
        let first = asked.as_mut().poll(&mut cx);
        if let Poll::Ready(result) = first {
            return Some(result);
        }
        assert!(offhand.serve(&mut cx).is_some(), "a call was left");
        match asked.as_mut().poll(&mut cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// The same, whatever the calls before have taken: a thread may have to wait for its processor at any time.
    fn ask_anyway(offhand: &Offhand, job: Job) -> Option<Result<CallResult, Job>> {
        lock(&offhand.0).untried = 0;
        ask(offhand, job)
    }

    fn open() -> Offhand {
        let offhand = Offhand::default();
        offhand.open();
        offhand
    }

    #[test]
    fn an_answer_that_is_there_is_taken_and_the_next_one_too() {
        let offhand = open();
        for _ in 0..2 {
            let answer = ask_anyway(&offhand, Box::pin(async { Ok(Response::Json("1".to_owned())) }));
            assert!(matches!(answer, Some(Ok(Ok(Response::Json(json)))) if json == "1"));
        }
        assert!(offhand.serve(&mut Context::from_waker(Waker::noop())).is_none(), "nothing is left");
    }

    #[test]
    fn a_call_that_takes_longer_is_given_back_whole() {
        let (answer, awaited) = tokio::sync::oneshot::channel::<CallResult>();
        let job: Job = Box::pin(async { awaited.await.unwrap_or_else(|_| Err(panicked())) });
        let Some(Err(mut job)) = ask(&open(), job) else { panic!("it has no answer yet") };
        answer.send(Ok(Response::Text("late".to_owned()))).expect("somebody waits");
        let polled = job.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(Response::Text(text))) if text == "late"));
    }

    #[test]
    fn a_bridge_that_panics_fails_its_call_alone() {
        let offhand = open();
        let answer = ask(&offhand, Box::pin(async { panic!("a bridge's own fault") }));
        assert!(matches!(answer, Some(Ok(Err(error))) if error.kind == CallErrorKind::Failed));
        let next = ask_anyway(&offhand, Box::pin(async { Ok(Response::Json(String::new())) }));
        assert!(matches!(next, Some(Ok(Ok(_)))));
    }

    #[test]
    fn calls_after_two_that_took_long_are_not_tried_for_a_while() {
        let offhand = open();
        let slow = || -> Job {
            Box::pin(async {
                let began = Instant::now();
                while began.elapsed() <= LONG {}
                Err(panicked())
            })
        };
        assert!((0..2).all(|_| matches!(ask(&offhand, slow()), Some(Ok(_)))));
        let quick = || Box::pin(async { Err(panicked()) });
        assert!((0..UNTRIED).all(|_| matches!(ask(&offhand, quick()), Some(Err(_)))));
        assert!(matches!(ask(&offhand, quick()), Some(Ok(_))));
    }

    #[tokio::test]
    async fn a_call_that_is_answered_soon_is_waited_for_and_no_longer_than_a_moment() {
        let offhand = open();
        for is_answered in [true, false] {
            let (answer, awaited) = tokio::sync::oneshot::channel::<CallResult>();
            let job: Job = Box::pin(async {
                answers_soon();
                awaited.await.unwrap_or_else(|_| Err(panicked()))
            });
            let mut asked = Box::pin(offhand.ask(job));
            assert!(futures::poll!(asked.as_mut()).is_pending());
            // A kernel that is left meanwhile keeps the call.
            let served = poll_fn(|cx| Poll::Ready(offhand.serve(cx))).await;
            assert!(served.is_none(), "the answer is not there");
            offhand.close();
            offhand.open();
            assert!(futures::poll!(asked.as_mut()).is_pending());
            if is_answered {
                answer.send(Ok(Response::Json("1".to_owned()))).expect("somebody waits");
            } else {
                sleep(SOON * 2).await;
            }
            let served = poll_fn(|cx| Poll::Ready(offhand.serve(cx))).await;
            assert!(served.is_some(), "it is over");
            assert_eq!(asked.await.is_ok(), is_answered, "a call without an answer is given back");
        }
    }

    #[test]
    fn a_call_that_nobody_would_poll_is_not_left() {
        let offhand = open();
        offhand.close();
        assert!(matches!(ask(&offhand, Box::pin(async { Err(panicked()) })), Some(Err(_))));
    }
}
