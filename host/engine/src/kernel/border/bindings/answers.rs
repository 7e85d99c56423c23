//! Answers of calls, as the guest gets them.

use super::{fetches, primitives, session, types};
use crate::contract::bridge::{
    CallError, CallErrorKind, CallResult, ChannelAnswer, ConnectorSpec, DiskUsage, FetchSpec, LentTable, LoadedDataset,
    OutputStream, PackSpec, PipeText, PrimitiveSpec, ProcessEnd, ProcessFailure, ProcessFailureKind, Response,
    Transferred,
};

/// The answer of a call that was started.
pub(crate) fn answer(result: CallResult) -> types::Answer {
    Ok(response(result?).ok_or_else(unexpected)?)
}

/// Error for a call whose answer is none that the call has.
fn unexpected() -> CallError {
    CallError::new(CallErrorKind::Failed, "the call was answered with what it does not return")
}

/// Converts the answer of a call made in place by `take`, which returns `None` for an answer that the call does not have.
pub(crate) fn answer_of<T>(
    result: CallResult,
    take: impl FnOnce(Response) -> Option<T>,
) -> Result<T, types::CallError> {
    Ok(take(result?).ok_or_else(unexpected)?)
}

/// The response of a call that was started; `None` for those of calls that are only made in place.
fn response(response: Response) -> Option<types::Response> {
    Some(match response {
        Response::Json(json) => types::Response::Json(json),
        Response::Text(text) => types::Response::Text(text),
        Response::Http(http) => types::Response::Http(types::HttpResponse {
            status: http.status,
            url: http.url,
            headers: http.headers,
            body: http.body,
        }),
        Response::Lent(table) => types::Response::Table(table.into()),
        Response::Written(bytes) => types::Response::Written(bytes),
        Response::Dataset(dataset) => types::Response::Dataset(dataset.into()),
        Response::Process(end) => types::Response::Process((*end).into()),
        Response::Channel(ChannelAnswer::Transferred(done)) => types::Response::Transferred(done.into()),
        Response::Channel(ChannelAnswer::Put(is_put)) => types::Response::Put(is_put),
        Response::Channel(ChannelAnswer::Taken(message)) => types::Response::Taken(message),
        // A kernel lends its tables before it answers; see `StoreData::lend`.
        Response::Table(_) | Response::Rows(_) | Response::Disk(_) | Response::Channel(_) | Response::Done => {
            return None;
        }
    })
}

impl From<LentTable> for types::LentTable {
    fn from(table: LentTable) -> types::LentTable {
        let LentTable { table, bytes, rows } = table;
        types::LentTable { table, bytes, rows }
    }
}

impl From<DiskUsage> for session::DiskUsage {
    fn from(usage: DiskUsage) -> session::DiskUsage {
        let DiskUsage { total, used } = usage;
        session::DiskUsage { total, used }
    }
}

impl From<LoadedDataset> for types::DatasetVersion {
    fn from(dataset: LoadedDataset) -> types::DatasetVersion {
        let LoadedDataset { name, version, artifact, rows } = dataset;
        types::DatasetVersion { name, version, artifact, rows }
    }
}

impl From<Transferred> for types::Transferred {
    fn from(done: Transferred) -> types::Transferred {
        let Transferred { rest, is_broken, read } = done;
        let piece = |PipeText { pipe, text, has_ended }| types::PipeText { pipe, text, ended: has_ended };
        types::Transferred { rest, broken: is_broken, read: read.into_iter().map(piece).collect() }
    }
}

impl From<ProcessEnd> for types::ProcessEnd {
    fn from(end: ProcessEnd) -> types::ProcessEnd {
        let ProcessEnd { status, output, failure, reply } = end;
        let stream = |stream| match stream {
            OutputStream::Stdout => types::StreamName::Stdout,
            OutputStream::Stderr => types::StreamName::Stderr,
        };
        let output = output.into_iter().map(|(from, text)| (stream(from), text)).collect();
        types::ProcessEnd { status, output, failure: failure.map(Into::into), reply }
    }
}

impl From<ProcessFailure> for types::ProcessFailure {
    fn from(failure: ProcessFailure) -> types::ProcessFailure {
        let kind = match failure.kind {
            ProcessFailureKind::Timeout => types::ProcessFailureKind::Timeout,
            ProcessFailureKind::Output => types::ProcessFailureKind::Output,
            ProcessFailureKind::NotStarted => types::ProcessFailureKind::NotStarted,
            ProcessFailureKind::Killed => types::ProcessFailureKind::Killed,
        };
        types::ProcessFailure { kind, message: failure.message }
    }
}

impl From<PackSpec> for primitives::Pack {
    fn from(pack: PackSpec) -> primitives::Pack {
        let PackSpec { name, version, description, primitives } = pack;
        let primitive = |PrimitiveSpec { name, description, schema, result }| primitives::Primitive {
            name,
            description,
            schema,
            result_schema: result,
        };
        primitives::Pack { name, version, description, primitives: primitives.into_iter().map(primitive).collect() }
    }
}

impl From<ConnectorSpec> for fetches::Connector {
    fn from(connector: ConnectorSpec) -> fetches::Connector {
        let ConnectorSpec { name, description, fetches } = connector;
        let column = |(name, type_name)| fetches::Column { name, type_name };
        let fetch = |FetchSpec { name, description, schema, columns }| fetches::Fetch {
            name,
            description,
            schema,
            columns: columns.into_iter().map(column).collect(),
        };
        fetches::Connector { name, description, fetches: fetches.into_iter().map(fetch).collect() }
    }
}
