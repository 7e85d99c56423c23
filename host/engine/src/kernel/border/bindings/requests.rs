//! Calls as the guest makes them, as data of the engine.

use std::time::Duration;

use cellar_core::cell::Language;

use super::{processes, tables, types};
use crate::contract::bridge::{
    AgentCall, Call, ChannelCall, Compression, Conversion, Direction, Drawing, Format, HttpCall, PipeEnd, Pipes,
    ProcessCall, ProcessRequest, TableCall,
};

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

impl From<tables::Conversion> for Call {
    fn from(conversion: tables::Conversion) -> Call {
        let tables::Conversion { source, target, direction, format, columns, compression } = conversion;
        let direction = match direction {
            tables::Direction::Read => Direction::Read,
            tables::Direction::Write => Direction::Write,
        };
        let format = match format {
            tables::Format::Parquet => Format::Parquet,
            tables::Format::Feather => Format::Feather,
        };
        let compression = compression.map(|compression| match compression {
            tables::Compression::Snappy => Compression::Snappy,
            tables::Compression::Gzip => Compression::Gzip,
            tables::Compression::Zstd => Compression::Zstd,
            tables::Compression::Lz4 => Compression::Lz4,
        });
        Call::Table(TableCall::Convert(Conversion { source, target, direction, format, columns, compression }))
    }
}

impl From<tables::Drawing> for Call {
    fn from(drawing: tables::Drawing) -> Call {
        let tables::Drawing { mime_type, specification, wanted, target } = drawing;
        Call::Table(TableCall::Draw(Drawing { mime_type, specification, wanted, target }))
    }
}

impl From<processes::ProcessRequest> for Call {
    fn from(request: processes::ProcessRequest) -> Call {
        let processes::ProcessRequest { language, code, order, environment, timeout, pipes } = request;
        let language = match language {
            processes::Language::Python => Language::Python,
            processes::Language::Javascript => Language::JavaScript,
        };
        let processes::ProcessPipes { input, output: out, errors: err } = pipes;
        let (timeout, pipes) = (timeout.map(Duration::from_nanos), Pipes { input, out, err });
        let request = ProcessRequest { language, code, order, environment, timeout, pipes };
        Call::Process(ProcessCall::Run(Box::new(request)))
    }
}

impl From<processes::TransferRequest> for Call {
    fn from(request: processes::TransferRequest) -> Call {
        let processes::TransferRequest { write, read, timeout } = request;
        let write = write.map(|processes::PipeWrite { pipe, text }| (pipe, text));
        ChannelCall::Transfer { write, read, timeout: timeout.map(Duration::from_nanos) }.into()
    }
}

impl From<processes::PipeEnd> for PipeEnd {
    fn from(end: processes::PipeEnd) -> PipeEnd {
        match end {
            processes::PipeEnd::Reading => PipeEnd::Reading,
            processes::PipeEnd::Writing => PipeEnd::Writing,
        }
    }
}

impl From<ChannelCall> for Call {
    fn from(call: ChannelCall) -> Call {
        Call::Process(ProcessCall::Channel(call))
    }
}
