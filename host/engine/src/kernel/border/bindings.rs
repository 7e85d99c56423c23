//! The generated face of `wit/kernel.wit`, and its translation to and from the engine's own types.
//!
//! The only module, with those below it, that names generated types on both sides; the import traits are implemented in
//! [`crate::kernel::imports`].

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "generated code")]

use cellar_core::{
    event::Scalar,
    mime::{self, MimeData},
    outcome::{Failure, FailureKind, Outcome},
};

use crate::contract::bridge::{CallError, CallErrorKind, ToolSpec};

mod answers;
mod requests;

pub(crate) use answers::{answer, answer_of};

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "kernel",
    imports: {
        "cellar:kernel/output.write": async | trappable,
        "cellar:kernel/output.display": async | trappable,
        "cellar:kernel/output.clear": async | trappable,
        "cellar:kernel/output.status": async | trappable,
        "cellar:kernel/output.bound": async | trappable,
        "cellar:kernel/tools.granted": async | trappable,
        "cellar:kernel/tools.call": async | trappable,
        "cellar:kernel/tools.start-call": async | trappable,
        "cellar:kernel/tools.take-answer": async | trappable,
        "cellar:kernel/tools.cancel": async | trappable,
        "cellar:kernel/primitives.call": async | trappable,
        "cellar:kernel/primitives.start-call": async | trappable,
        "cellar:kernel/fetches.call": async | trappable,
        "cellar:kernel/fetches.start-call": async | trappable,
        "cellar:kernel/session.disk": async | trappable,
        "cellar:kernel/tables.convert": async | trappable,
        "cellar:kernel/tables.start-convert": async | trappable,
        "cellar:kernel/tables.load": async | trappable,
        "cellar:kernel/tables.start-load": async | trappable,
        "cellar:kernel/tables.read": async | trappable,
        "cellar:kernel/tables.start-read": async | trappable,
        "cellar:kernel/tables.list": async | trappable,
        "cellar:kernel/tables.start-list": async | trappable,
        "cellar:kernel/tables.publish": async | trappable,
        "cellar:kernel/tables.start-publish": async | trappable,
        "cellar:kernel/tables.draw": async | trappable,
        "cellar:kernel/tables.start-draw": async | trappable,
        "cellar:kernel/processes.run": async | trappable,
        "cellar:kernel/processes.start-run": async | trappable,
        "cellar:kernel/processes.order": async | trappable,
        "cellar:kernel/processes.reply": async | trappable,
        "cellar:kernel/processes.make-pipes": async | trappable,
        "cellar:kernel/processes.make-box": async | trappable,
        "cellar:kernel/processes.transfer": async | trappable,
        "cellar:kernel/processes.start-transfer": async | trappable,
        "cellar:kernel/processes.close": async | trappable,
        "cellar:kernel/processes.put": async | trappable,
        "cellar:kernel/processes.start-put": async | trappable,
        "cellar:kernel/processes.take": async | trappable,
        "cellar:kernel/processes.start-take": async | trappable,
        "cellar:kernel/processes.count": async | trappable,
        "cellar:kernel/processes.forget": async | trappable,
        "cellar:kernel/llm.call": async | trappable,
        "cellar:kernel/llm.start-call": async | trappable,
        "cellar:kernel/agents.call": async | trappable,
        "cellar:kernel/agents.start-call": async | trappable,
        "cellar:kernel/input.call": async | trappable,
        "cellar:kernel/input.start-call": async | trappable,
        "cellar:kernel/http.call": async | trappable,
        "cellar:kernel/http.start-call": async | trappable,
        "cellar:kernel/control.sleep-until": async | trappable,
        "cellar:kernel/control.wait": async | trappable,
        "cellar:kernel/control.give-way": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    require_store_data_send: true,
    additional_derives: [serde::Serialize, serde::Deserialize],
});

impl<T: Send + 'static> KernelPre<T> {
    /// Instantiates the guest; the instance itself finds exports whose results are not to be copied.
    pub(crate) async fn start(
        &self,
        mut store: impl wasmtime::AsContextMut<Data = T>,
    ) -> wasmtime::Result<(wasmtime::component::Instance, Kernel)> {
        let instance = self.instance_pre.instantiate_async(&mut store).await?;
        let exports = self.indices.load(&mut store, &instance)?;
        Ok((instance, exports))
    }
}

/// The version of the kernel world that this host speaks.
pub(crate) const WORLD_VERSION: &str = "0.12.0";
/// Prefix of the name of every import of a guest.
pub(crate) const WORLD_PACKAGE: &str = "cellar:kernel/";

pub(crate) use cellar::kernel::types;
pub(crate) use cellar::kernel::{
    agents, control, fetches, files, http, input, llm, output, primitives, processes, session, tables, tools,
};

impl From<types::Outcome> for Outcome {
    fn from(outcome: types::Outcome) -> Outcome {
        match outcome {
            types::Outcome::Complete => Outcome::Complete,
            types::Outcome::Exited(status) => Outcome::Exited(status),
            types::Outcome::Failed(failure) => Outcome::Failed(Box::new(failure.into())),
        }
    }
}

impl From<types::Failure> for Failure {
    fn from(failure: types::Failure) -> Failure {
        Failure {
            code: None,
            kind: match failure.kind {
                types::FailureKind::Raised => FailureKind::Raised,
                types::FailureKind::Stopped(reason) => stop_kind(reason),
                types::FailureKind::Memory => FailureKind::Memory,
                types::FailureKind::Stdin => FailureKind::Stdin,
            },
            name: failure.name,
            message: failure.message,
            line: failure.line,
            column: failure.column,
            snippet: failure.snippet,
            pointer: failure.pointer,
            traceback: failure.traceback,
            state_kept: true,
        }
    }
}

/// The class of failure that a stop leads to.
pub(crate) fn stop_kind(reason: types::StopReason) -> FailureKind {
    match reason {
        types::StopReason::Timeout => FailureKind::Timeout,
        types::StopReason::Interrupted => FailureKind::Interrupted,
        types::StopReason::Fuel => FailureKind::Fuel,
        types::StopReason::Output => FailureKind::Output,
    }
}

/// Returns the name of the exception for a stop, which is the same in every language.
pub(crate) fn stop_name(reason: types::StopReason) -> &'static str {
    match reason {
        types::StopReason::Timeout => "CellTimeout",
        types::StopReason::Interrupted => "CellInterrupted",
        types::StopReason::Fuel => "CellOutOfFuel",
        types::StopReason::Output => "CellOutputExceeded",
    }
}

/// A MIME bundle as the guest gave it.
pub(crate) fn mime_bundle(bundle: types::MimeBundle) -> mime::MimeBundle {
    let data = |data| match data {
        types::MimeData::Text(text) => MimeData::Text(text),
        types::MimeData::Binary(bytes) => MimeData::Binary(bytes),
    };
    mime::MimeBundle(bundle.into_iter().map(|(name, value)| (name, data(value))).collect())
}

impl From<types::Scalar> for Scalar {
    fn from(scalar: types::Scalar) -> Scalar {
        match scalar {
            types::Scalar::Text(text) => Scalar::Text(text),
            types::Scalar::Integer(number) => Scalar::Integer(number),
            types::Scalar::Number(number) => Scalar::Number(number),
            types::Scalar::Boolean(yes) => Scalar::Boolean(yes),
        }
    }
}

impl From<ToolSpec> for tools::Tool {
    fn from(spec: ToolSpec) -> tools::Tool {
        tools::Tool { name: spec.name, description: spec.description, schema: spec.schema }
    }
}

impl From<CallError> for types::CallError {
    fn from(error: CallError) -> types::CallError {
        types::CallError {
            kind: match error.kind {
                CallErrorKind::Failed => types::CallErrorKind::Failed,
                CallErrorKind::Denied => types::CallErrorKind::Denied,
                CallErrorKind::Unknown => types::CallErrorKind::Unknown,
                CallErrorKind::Invalid => types::CallErrorKind::Invalid,
                CallErrorKind::Cancelled => types::CallErrorKind::Cancelled,
                CallErrorKind::Limit => types::CallErrorKind::Limit,
            },
            message: error.message,
        }
    }
}
