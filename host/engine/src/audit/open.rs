//! Open calls of a kernel, for their entries in the audit log and the host's trace.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::{cell::RunId, event::Bridge, text::prefix, time::fractional_millis};
use tracing::Span;

use super::{AuditKind, Auditor, CallEntry, NAME_BYTES_MAX, bare_url, call_outcome};
use crate::contract::bridge::{Call, CallError, CallErrorKind, CallResult};

/// Description of a call, as it began.
#[derive(Debug)]
pub(crate) struct CalledAs {
    bridge: Bridge,
    name: String,
    request_bytes: usize,
    /// The run that the cell belongs to, while it has one.
    run: Option<RunId>,
    cell: Option<u32>,
    began: Instant,
    span: Span,
}

impl CalledAs {
    /// A call of `cell`, whose span is `parent`.
    pub(crate) fn new(
        call: &Call,
        request_bytes: usize,
        cell: Option<u32>,
        run: Option<RunId>,
        parent: &Span,
    ) -> CalledAs {
        let name = match call {
            Call::Http(request) => format!("{} {}", request.method, bare_url(&request.url)),
            call => call.name().into_owned(),
        };
        let name = prefix(&name, NAME_BYTES_MAX).to_owned();
        let bridge = call.bridge();
        let span = tracing::info_span!(parent: parent, "call", bridge = bridge.as_str(), name);
        CalledAs { bridge, name, request_bytes, run, cell, began: Instant::now(), span }
    }

    /// Traces the end of the call.
    fn trace_end(&self, call: u64, duration: Duration, result: &CallResult) {
        let (outcome, response_bytes) = call_outcome(result);
        let duration_ms = fractional_millis(duration);
        tracing::info!(parent: &self.span, call, outcome, duration_ms, response_bytes, "call ended");
    }

    fn entry(&self, call: u64, duration: Duration, result: &CallResult) -> AuditKind {
        let (outcome, response_bytes) = call_outcome(result);
        AuditKind::Call(CallEntry {
            cell: self.cell,
            call,
            bridge: self.bridge.as_str().to_owned(),
            name: self.name.clone(),
            outcome: outcome.to_owned(),
            duration_ms: fractional_millis(duration),
            request_bytes: self.request_bytes,
            response_bytes,
        })
    }
}

/// The calls of one kernel that have not ended. Each has its entry in the audit log, whatever becomes of the kernel: calls that
/// are open when this is dropped are logged as cancelled.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    /// Auditor of the session; absent if nothing is audited.
    auditor: Option<Arc<Auditor>>,
    /// Open calls, no more than a kernel may have begun.
    open: HashMap<u64, CalledAs>,
}

impl OpenCalls {
    pub(crate) fn new(auditor: Option<Arc<Auditor>>) -> OpenCalls {
        OpenCalls { auditor, open: HashMap::new() }
    }

    /// Returns true if calls go to an audit log or to the host's trace.
    pub(crate) fn is_on(&self) -> bool {
        self.auditor.is_some() || tracing::enabled!(tracing::Level::INFO)
    }

    /// Returns the error of every call while the audit log cannot be written; `None` otherwise.
    pub(crate) fn refusal(&self) -> Option<CallError> {
        let is_failing = self.auditor.as_ref().is_some_and(|auditor| auditor.is_failing());
        is_failing.then(|| lost("the audit log cannot be written, and nothing may be called before it can"))
    }

    /// Notes that a call begins. Returns its span.
    pub(crate) fn begun(&mut self, call: u64, called: CalledAs) -> Span {
        let span = called.span.clone();
        self.open.insert(call, called);
        span
    }

    /// Logs a call that has ended, once. A call that cannot be logged fails.
    pub(crate) async fn ended(&mut self, call: u64, duration: Duration, result: &mut CallResult) {
        let Some(called) = self.open.remove(&call) else { return };
        called.trace_end(call, duration, result);
        let Some(auditor) = &self.auditor else { return };
        if let Err(reason) = auditor.write(called.run, called.entry(call, duration, result)).await {
            *result = Err(lost(&reason));
        }
    }

    /// Logs a call that was cancelled, where nothing can wait for the log.
    pub(crate) fn cancelled(&mut self, call: u64, duration: Duration) {
        let Some(called) = self.open.remove(&call) else { return };
        let result = Err(CallError::new(CallErrorKind::Cancelled, ""));
        called.trace_end(call, duration, &result);
        if let Some(auditor) = &self.auditor {
            // What is lost is in the host's log.
            auditor.write_later(called.run, called.entry(call, duration, &result));
        }
    }
}

impl Drop for OpenCalls {
    fn drop(&mut self) {
        let Some(auditor) = &self.auditor else { return };
        for (call, called) in self.open.drain() {
            let result = Err(CallError::new(CallErrorKind::Cancelled, ""));
            // What is lost is in the host's log.
            auditor.write_later(called.run, called.entry(call, called.began.elapsed(), &result));
        }
    }
}

fn lost(message: &str) -> CallError {
    CallError::new(CallErrorKind::Failed, message)
}
