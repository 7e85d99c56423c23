//! The answers to the imports by which cells call: tools, primitives, fetches, models, agents, input, hosts, and the
//! session itself.

use std::time::Duration;

use crate::{
    contract::bridge::{Call, ChannelAnswer, ChannelCall, FetchName, ProcessCall, Response, TableCall},
    kernel::{
        border::{
            agents, answer, answer_of, fetches, http, input, llm, primitives, processes, session, tables, tools,
            types::{self, CallError},
        },
        record::Import,
        state::StoreData,
    },
};

/// Takes the value of a response that has to be of this kind.
macro_rules! taking {
    ($pattern:pat => $value:expr) => {
        |response| match response {
            $pattern => Some($value),
            _ => None,
        }
    };
}

impl StoreData {
    /// Makes a call in place, and takes of its response what the call returns.
    async fn call_for<T>(
        &mut self,
        cell: u32,
        call: impl Into<Call>,
        take: impl FnOnce(Response) -> Option<T>,
    ) -> wasmtime::Result<Result<T, CallError>> {
        Ok(answer_of(self.block_call(cell, call.into()).await?, take))
    }
}

/// Writes both forms of a call that can be started: one waits for its answer, the other begins it, and its answer comes
/// with a later entry.
macro_rules! both_forms {
    ($call:ident, $start:ident($($name:ident: $type:ty),*) -> $value:ty, $made:expr, $take:expr) => {
        async fn $call(&mut self, cell: u32, $($name: $type),*) -> wasmtime::Result<Result<$value, CallError>> {
            self.call_for(cell, $made, $take).await
        }

        async fn $start(&mut self, cell: u32, $($name: $type),*) -> wasmtime::Result<u64> {
            StoreData::start_call(self, cell, Call::from($made)).await
        }
    };
}

impl tools::Host for StoreData {
    async fn granted(&mut self) -> wasmtime::Result<Vec<tools::Tool>> {
        let cell = self.executing;
        let tools = match self.binding.tape.is_replaying() {
            true => Vec::new(),
            false => {
                let granted = self.binding.answers.tools();
                self.wait_for(cell, granted).await.unwrap_or_default()
            }
        };
        self.taped(Import::ToolsGranted, (), |_| Ok(tools.into_iter().map(Into::into).collect::<Vec<_>>()))
    }

    both_forms!(
        call,
        start_call(name: String, arguments: String) -> String,
        Call::Tool { name, arguments },
        taking!(Response::Json(json) => json)
    );

    async fn take_answer(&mut self, call: u64) -> wasmtime::Result<Option<types::Answer>> {
        StoreData::take_answer(self, call).await
    }

    async fn cancel(&mut self, call: u64) -> wasmtime::Result<()> {
        if let Some(mut end) = self.binding.calls.cancel(call, "the call was cancelled") {
            self.report_end(&mut end).await;
        }
        Ok(())
    }
}

impl primitives::Host for StoreData {
    fn granted(&mut self) -> wasmtime::Result<Vec<primitives::Pack>> {
        self.taped(Import::PrimitivesGranted, (), |data| {
            Ok(data.binding.answers.packs().into_iter().map(Into::into).collect())
        })
    }

    both_forms!(
        call,
        start_call(pack: String, name: String, arguments: String) -> String,
        Call::Primitive { pack, name, arguments },
        taking!(Response::Json(json) => json)
    );
}

impl fetches::Host for StoreData {
    fn granted(&mut self) -> wasmtime::Result<Vec<fetches::Connector>> {
        self.taped(Import::FetchesGranted, (), |data| {
            Ok(data.binding.answers.connectors().into_iter().map(Into::into).collect())
        })
    }

    both_forms!(
        call,
        start_call(connector: String, fetch: String, arguments: String, refresh: bool) -> types::LentTable,
        Call::Fetch { name: FetchName { connector, fetch }, arguments, refresh },
        taking!(Response::Lent(table) => table.into())
    );

    fn take(&mut self, table: u64, length: u32) -> wasmtime::Result<Vec<u8>> {
        self.taped(Import::Take, (table, length), |data| Ok(data.tables.take(table, length)))
    }
}

/// The interfaces whose calls differ in nothing but the request.
macro_rules! bridge_host {
    ($interface:ident, $request:ty, $to_call:expr) => {
        impl $interface::Host for StoreData {
            async fn call(&mut self, cell: u32, request: $request) -> wasmtime::Result<types::Answer> {
                Ok(answer(self.block_call(cell, $to_call(request)).await?))
            }

            async fn start_call(&mut self, cell: u32, request: $request) -> wasmtime::Result<u64> {
                StoreData::start_call(self, cell, $to_call(request)).await
            }
        }
    };
}

bridge_host!(llm, types::LlmRequest, Call::from);
bridge_host!(agents, types::AgentRequest, Call::from);
bridge_host!(http, types::HttpRequest, Call::from);
bridge_host!(input, String, |prompt| Call::Input { prompt });

impl session::Host for StoreData {
    async fn disk(&mut self, cell: u32) -> wasmtime::Result<Result<session::DiskUsage, CallError>> {
        self.call_for(cell, Call::Disk, taking!(Response::Disk(usage) => usage.into())).await
    }
}

impl tables::Host for StoreData {
    both_forms!(
        convert,
        start_convert(conversion: tables::Conversion) -> u64,
        conversion,
        taking!(Response::Written(bytes) => bytes)
    );

    both_forms!(
        load,
        start_load(name: String, version: Option<u64>, target: String) -> types::DatasetVersion,
        Call::Table(TableCall::Load { name, version, target }),
        taking!(Response::Dataset(dataset) => dataset.into())
    );

    both_forms!(
        read,
        start_read(name: String, version: Option<u64>) -> types::LentTable,
        Call::Table(TableCall::Read { name, version }),
        taking!(Response::Lent(table) => table.into())
    );

    both_forms!(
        list,
        start_list(name: Option<String>) -> String,
        Call::Table(TableCall::List { name }),
        taking!(Response::Json(json) => json)
    );

    both_forms!(
        publish,
        start_publish(name: String, source: String, read: Vec<String>) -> types::DatasetVersion,
        Call::Table(TableCall::Publish { name, source, read }),
        taking!(Response::Dataset(dataset) => dataset.into())
    );

    both_forms!(
        draw,
        start_draw(drawing: tables::Drawing) -> u64,
        drawing,
        taking!(Response::Written(bytes) => bytes)
    );
}

impl processes::Host for StoreData {
    both_forms!(
        run,
        start_run(request: processes::ProcessRequest) -> types::ProcessEnd,
        request,
        taking!(Response::Process(end) => (*end).into())
    );

    async fn order(&mut self, cell: u32) -> wasmtime::Result<Result<String, CallError>> {
        self.call_for(cell, Call::Process(ProcessCall::Order), taking!(Response::Text(order) => order)).await
    }

    async fn reply(&mut self, cell: u32, reply: String) -> wasmtime::Result<Result<(), CallError>> {
        self.call_for(cell, Call::Process(ProcessCall::Reply(reply)), taking!(Response::Done => ())).await
    }

    async fn make_pipes(&mut self, cell: u32, count: u32) -> wasmtime::Result<Result<Vec<u64>, CallError>> {
        let call = ChannelCall::MakePipes { count: usize::try_from(count).unwrap_or(usize::MAX) };
        self.call_for(cell, call, taking!(Response::Channel(ChannelAnswer::Pipes(pipes)) => pipes)).await
    }

    async fn make_box(&mut self, cell: u32, capacity: Option<u64>) -> wasmtime::Result<Result<u64, CallError>> {
        let call = ChannelCall::MakeBox { capacity };
        self.call_for(cell, call, taking!(Response::Channel(ChannelAnswer::Box(number)) => number)).await
    }

    both_forms!(
        transfer,
        start_transfer(request: processes::TransferRequest) -> types::Transferred,
        request,
        taking!(Response::Channel(ChannelAnswer::Transferred(done)) => done.into())
    );

    async fn close(
        &mut self,
        cell: u32,
        pipe: u64,
        end: processes::PipeEnd,
    ) -> wasmtime::Result<Result<(), CallError>> {
        let call = ChannelCall::Close { pipe, end: end.into() };
        self.call_for(cell, call, taking!(Response::Channel(ChannelAnswer::Done) => ())).await
    }

    both_forms!(
        put,
        start_put(into: u64, message: String, timeout: Option<u64>) -> bool,
        ChannelCall::Put { into, message, timeout: timeout.map(Duration::from_nanos) },
        taking!(Response::Channel(ChannelAnswer::Put(is_put)) => is_put)
    );

    both_forms!(
        take,
        start_take(from: u64, keep: bool, timeout: Option<u64>) -> Option<String>,
        ChannelCall::Take { from, keep, timeout: timeout.map(Duration::from_nanos) },
        taking!(Response::Channel(ChannelAnswer::Taken(message)) => message)
    );

    async fn count(&mut self, cell: u32, of: u64) -> wasmtime::Result<Result<u64, CallError>> {
        self.call_for(cell, ChannelCall::Count { of }, taking!(Response::Channel(ChannelAnswer::Count(count)) => count))
            .await
    }

    async fn forget(&mut self, cell: u32, channels: Vec<u64>) -> wasmtime::Result<Result<(), CallError>> {
        self.call_for(cell, ChannelCall::Forget { channels }, taking!(Response::Channel(ChannelAnswer::Done) => ()))
            .await
    }
}
