//! The generated face of `wit/kernel.wit`, and its translation to and from the engine's own types.
//!
//! The only module that names generated types on both sides; the import traits are implemented in
//! [`crate::kernel::imports`].

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "generated code")]

use std::time::Duration;

use cellar_core::{
    event::Scalar,
    mime::{self, MimeData},
    outcome::{Failure, FailureKind, Outcome},
};

use crate::contract::bridge::{AgentCall, Call, CallError, CallErrorKind, HttpCall, Response, ToolSpec};

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
pub(crate) const WORLD_VERSION: &str = "0.11.0";
/// Prefix of the name of every import of a guest.
pub(crate) const WORLD_PACKAGE: &str = "cellar:kernel/";

pub(crate) use cellar::kernel::types;
pub(crate) use cellar::kernel::{agents, control, files, http, input, llm, output, tools};

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

impl From<types::LlmRequest> for Call {
    fn from(request: types::LlmRequest) -> Call {
        let types::LlmRequest { prompt, model, system, schema } = request;
        Call::Llm { prompt, model, system, schema }
    }
}

impl From<types::AgentRequest> for Call {
    fn from(request: types::AgentRequest) -> Call {
        let types::AgentRequest { prompt, agent_type, model, context, label, schema } = request;
        Call::Agent(AgentCall { prompt, agent_type, model, context, label, schema })
    }
}

impl From<types::HttpRequest> for Call {
    fn from(request: types::HttpRequest) -> Call {
        let types::HttpRequest { method, url, headers, body, timeout } = request;
        Call::Http(HttpCall { method, url, headers, body, timeout: timeout.map(Duration::from_nanos) })
    }
}

impl From<Response> for types::Response {
    fn from(response: Response) -> types::Response {
        match response {
            Response::Json(json) => types::Response::Json(json),
            Response::Text(text) => types::Response::Text(text),
            Response::Http(http) => types::Response::Http(types::HttpResponse {
                status: http.status,
                url: http.url,
                headers: http.headers,
                body: http.body,
            }),
            // A kernel lends its tables by number; see `StoreData::lend`.
            Response::Table(_) => types::Response::Json("null".to_owned()),
        }
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
