//! Runs that a thread of the program waits for: it drives their kernels itself, and answers the calls of tools that have been quick. So
//! nothing is handed from thread to thread between a program and its cells.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::Duration,
};

use cellar_config::Config;
use cellar_hub::{LineError, OnDisconnect, RunRequest};
use cellar_wire::{Answer, Caller, Request, ResultJson, request_from_json};
use pyo3::prelude::*;
use tokio::{
    runtime::Handle,
    task::unconstrained,
    time::{error::Elapsed, timeout},
};

use crate::{functions::ToolCall, state::Local};

/// Interval at which whoever waits looks for signals.
pub(crate) const SIGNALS: Duration = Duration::from_millis(50);

/// Polls of a run before its thread sleeps.
const POLLS: u32 = 8;

thread_local! {
    /// True while this thread drives a run.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
    /// Call of a tool that this thread is to answer.
    static CALL: RefCell<Option<ToolCall>> = const { RefCell::new(None) };
}

/// Leaves a call to the thread that drives the run; returns it if none does here, or has one already.
pub(crate) fn leave(call: ToolCall) -> Result<(), ToolCall> {
    if !IS_HERE.get() {
        return Err(call);
    }
    CALL.with_borrow_mut(|place| match place {
        Some(_) => Err(call),
        None => {
            *place = Some(call);
            Ok(())
        }
    })
}

/// Waits for something of the engine's without the interpreter's lock.
///
/// # Errors
/// The exception of a handler of signals, which ends the wait.
pub(crate) fn wait<T: Send>(py: Python<'_>, handle: &Handle, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let mut future = pin!(future);
    loop {
        match py.detach(|| handle.block_on(async { timeout(SIGNALS, future.as_mut()).await })) {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Step of a run that this thread drives.
enum Step {
    Ended(Box<Answer>),
    Call(Box<ToolCall>),
}

/// Runs the cells of a request, and returns the answer: the result, or a refusal.
///
/// # Errors
/// The exception of a handler of signals, or one that ends programs and was raised by a tool. The run is cancelled.
pub(crate) fn run(py: Python<'_>, handle: &Handle, local: &Local, line: &[u8]) -> PyResult<Answer> {
    let (id, request) = request_from_json::<Config>(line, "the run", Caller::Trusted);
    let own = id.clone().unwrap_or_default();
    let begun = match request {
        Ok(Request::Run { session, cells, keep_going, options }) => {
            let on_disconnect = OnDisconnect::Cancel(Duration::ZERO);
            let request = RunRequest { id: own, cells, keep_going, options, is_owned: true, on_disconnect };
            local.hub().begin(&session.unwrap_or_default(), request).map_err(LineError::from)
        }
        Ok(_) => Err(LineError::refused("usage", "this is no run")),
        Err(invalid) => Err(LineError::Invalid(invalid)),
    };
    let (run, driving) = match begun {
        Ok(begun) => begun,
        Err(error) => return Ok(refusal(id, &error)),
    };
    let owner = run.own_result();
    let ended = run.clone();
    let mut waiting = Box::pin(async move {
        driving.await;
        let answer = match ended.result().await {
            Ok(result) => Answer::Result { id: id.unwrap_or_default(), result: Box::new(ResultJson::from(&*result)) },
            Err(error) => refusal(id, &error.into()),
        };
        drop(owner);
        Box::new(answer)
    });
    let mut driver = run.session().driver();
    loop {
        let step = py.detach(|| {
            let was_here = IS_HERE.replace(true);
            let next = poll_fn(|cx| match driver.poll(cx, waiting.as_mut()) {
                Poll::Ready(answer) => Poll::Ready(Step::Ended(answer)),
                Poll::Pending => match CALL.take() {
                    Some(call) => Poll::Ready(Step::Call(Box::new(call))),
                    None => Poll::Pending,
                },
            });
            // A kernel that had used up the budget of a task would be polled in vain.
            let step = handle.block_on(unconstrained(async { timeout_late(next).await }));
            IS_HERE.set(was_here);
            match step {
                // Nobody waits for what was called last.
                Ok(Step::Ended(_)) => drop(CALL.take()),
                _ => driver.pause(),
            }
            step
        });
        let done = match step {
            Ok(Step::Ended(answer)) => return Ok(*answer),
            Ok(Step::Call(call)) => call.answer(py, true),
            Err(_) => py.check_signals(),
        };
        if let Err(error) = done {
            run.cancel();
            // It goes on to its end as a task of the runtime.
            let _entered = handle.enter();
            drop(waiting);
            return Err(error);
        }
    }
}

/// Waits for something for [`SIGNALS`]. A timer is only made for what is not there after a few polls: it wakes the thread that keeps timers.
async fn timeout_late<T>(next: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut next = pin!(next);
    for _ in 0..POLLS {
        if let Poll::Ready(output) = futures::poll!(next.as_mut()) {
            return Ok(output);
        }
    }
    timeout(SIGNALS, next).await
}

fn refusal(id: Option<String>, error: &LineError) -> Answer {
    Answer::Error { id, line: 0, error: error.refusal() }
}
