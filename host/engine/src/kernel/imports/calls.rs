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

    async fn call_for_json(&mut self, cell: u32, call: Call) -> wasmtime::Result<Result<String, CallError>> {
        self.call_for(cell, call, taking!(Response::Json(json) => json)).await
    }

    async fn call_for_channel<T>(
        &mut self,
        cell: u32,
        call: impl Into<Call>,
        take: impl FnOnce(ChannelAnswer) -> Option<T>,
    ) -> wasmtime::Result<Result<T, CallError>> {
        let take = |response| if let Response::Channel(answer) = response { take(answer) } else { None };
        self.call_for(cell, call, take).await
    }
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

    async fn call(
        &mut self,
        cell: u32,
        name: String,
        arguments: String,
    ) -> wasmtime::Result<Result<String, CallError>> {
        self.call_for_json(cell, Call::Tool { name, arguments }).await
    }

    async fn start_call(&mut self, cell: u32, name: String, arguments: String) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, Call::Tool { name, arguments }).await
    }

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

    async fn call(
        &mut self,
        cell: u32,
        pack: String,
        name: String,
        arguments: String,
    ) -> wasmtime::Result<Result<String, CallError>> {
        self.call_for_json(cell, Call::Primitive { pack, name, arguments }).await
    }

    async fn start_call(&mut self, cell: u32, pack: String, name: String, arguments: String) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, Call::Primitive { pack, name, arguments }).await
    }
}

impl fetches::Host for StoreData {
    fn granted(&mut self) -> wasmtime::Result<Vec<fetches::Connector>> {
        self.taped(Import::FetchesGranted, (), |data| {
            Ok(data.binding.answers.connectors().into_iter().map(Into::into).collect())
        })
    }

    async fn call(
        &mut self,
        cell: u32,
        connector: String,
        fetch: String,
        arguments: String,
        refresh: bool,
    ) -> wasmtime::Result<Result<types::LentTable, CallError>> {
        let call = Call::Fetch { name: FetchName { connector, fetch }, arguments, refresh };
        self.call_for(cell, call, taking!(Response::Lent(table) => table.into())).await
    }

    async fn start_call(
        &mut self,
        cell: u32,
        connector: String,
        fetch: String,
        arguments: String,
        refresh: bool,
    ) -> wasmtime::Result<u64> {
        let call = Call::Fetch { name: FetchName { connector, fetch }, arguments, refresh };
        StoreData::start_call(self, cell, call).await
    }

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
    async fn convert(&mut self, cell: u32, conversion: tables::Conversion) -> wasmtime::Result<Result<u64, CallError>> {
        self.call_for(cell, conversion, taking!(Response::Written(bytes) => bytes)).await
    }

    async fn start_convert(&mut self, cell: u32, conversion: tables::Conversion) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, conversion.into()).await
    }

    async fn load(
        &mut self,
        cell: u32,
        name: String,
        version: Option<u64>,
        target: String,
    ) -> wasmtime::Result<Result<types::DatasetVersion, CallError>> {
        let call = Call::Table(TableCall::Load { name, version, target });
        self.call_for(cell, call, taking!(Response::Dataset(dataset) => dataset.into())).await
    }

    async fn start_load(
        &mut self,
        cell: u32,
        name: String,
        version: Option<u64>,
        target: String,
    ) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, Call::Table(TableCall::Load { name, version, target })).await
    }

    async fn read(
        &mut self,
        cell: u32,
        name: String,
        version: Option<u64>,
    ) -> wasmtime::Result<Result<types::LentTable, CallError>> {
        let call = Call::Table(TableCall::Read { name, version });
        self.call_for(cell, call, taking!(Response::Lent(table) => table.into())).await
    }

    async fn start_read(&mut self, cell: u32, name: String, version: Option<u64>) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, Call::Table(TableCall::Read { name, version })).await
    }

    async fn list(&mut self, cell: u32, name: Option<String>) -> wasmtime::Result<Result<String, CallError>> {
        self.call_for_json(cell, Call::Table(TableCall::List { name })).await
    }

    async fn start_list(&mut self, cell: u32, name: Option<String>) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, Call::Table(TableCall::List { name })).await
    }

    async fn publish(
        &mut self,
        cell: u32,
        name: String,
        source: String,
        read: Vec<String>,
    ) -> wasmtime::Result<Result<types::DatasetVersion, CallError>> {
        let call = Call::Table(TableCall::Publish { name, source, read });
        self.call_for(cell, call, taking!(Response::Dataset(dataset) => dataset.into())).await
    }

    async fn start_publish(
        &mut self,
        cell: u32,
        name: String,
        source: String,
        read: Vec<String>,
    ) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, Call::Table(TableCall::Publish { name, source, read })).await
    }

    async fn draw(&mut self, cell: u32, drawing: tables::Drawing) -> wasmtime::Result<Result<u64, CallError>> {
        self.call_for(cell, drawing, taking!(Response::Written(bytes) => bytes)).await
    }

    async fn start_draw(&mut self, cell: u32, drawing: tables::Drawing) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, drawing.into()).await
    }
}

impl processes::Host for StoreData {
    async fn run(
        &mut self,
        cell: u32,
        request: processes::ProcessRequest,
    ) -> wasmtime::Result<Result<types::ProcessEnd, CallError>> {
        self.call_for(cell, request, taking!(Response::Process(end) => (*end).into())).await
    }

    async fn start_run(&mut self, cell: u32, request: processes::ProcessRequest) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, request.into()).await
    }

    async fn order(&mut self, cell: u32) -> wasmtime::Result<Result<String, CallError>> {
        self.call_for(cell, Call::Process(ProcessCall::Order), taking!(Response::Text(order) => order)).await
    }

    async fn reply(&mut self, cell: u32, reply: String) -> wasmtime::Result<Result<(), CallError>> {
        self.call_for(cell, Call::Process(ProcessCall::Reply(reply)), taking!(Response::Done => ())).await
    }

    async fn make_pipes(&mut self, cell: u32, count: u32) -> wasmtime::Result<Result<Vec<u64>, CallError>> {
        let call = ChannelCall::MakePipes { count: usize::try_from(count).unwrap_or(usize::MAX) };
        self.call_for_channel(cell, call, taking!(ChannelAnswer::Pipes(pipes) => pipes)).await
    }

    async fn make_box(&mut self, cell: u32, capacity: Option<u64>) -> wasmtime::Result<Result<u64, CallError>> {
        let call = ChannelCall::MakeBox { capacity };
        self.call_for_channel(cell, call, taking!(ChannelAnswer::Box(number) => number)).await
    }

    async fn transfer(
        &mut self,
        cell: u32,
        request: processes::TransferRequest,
    ) -> wasmtime::Result<Result<types::Transferred, CallError>> {
        self.call_for_channel(cell, request, taking!(ChannelAnswer::Transferred(done) => done.into())).await
    }

    async fn start_transfer(&mut self, cell: u32, request: processes::TransferRequest) -> wasmtime::Result<u64> {
        StoreData::start_call(self, cell, request.into()).await
    }

    async fn close(
        &mut self,
        cell: u32,
        pipe: u64,
        end: processes::PipeEnd,
    ) -> wasmtime::Result<Result<(), CallError>> {
        let call = ChannelCall::Close { pipe, end: end.into() };
        self.call_for_channel(cell, call, taking!(ChannelAnswer::Done => ())).await
    }

    async fn put(
        &mut self,
        cell: u32,
        into: u64,
        message: String,
        timeout: Option<u64>,
    ) -> wasmtime::Result<Result<bool, CallError>> {
        let call = ChannelCall::Put { into, message, timeout: timeout.map(Duration::from_nanos) };
        self.call_for_channel(cell, call, taking!(ChannelAnswer::Put(is_put) => is_put)).await
    }

    async fn start_put(
        &mut self,
        cell: u32,
        into: u64,
        message: String,
        timeout: Option<u64>,
    ) -> wasmtime::Result<u64> {
        let call = ChannelCall::Put { into, message, timeout: timeout.map(Duration::from_nanos) };
        StoreData::start_call(self, cell, call.into()).await
    }

    async fn take(
        &mut self,
        cell: u32,
        from: u64,
        keep: bool,
        timeout: Option<u64>,
    ) -> wasmtime::Result<Result<Option<String>, CallError>> {
        let call = ChannelCall::Take { from, keep, timeout: timeout.map(Duration::from_nanos) };
        self.call_for_channel(cell, call, taking!(ChannelAnswer::Taken(message) => message)).await
    }

    async fn start_take(&mut self, cell: u32, from: u64, keep: bool, timeout: Option<u64>) -> wasmtime::Result<u64> {
        let call = ChannelCall::Take { from, keep, timeout: timeout.map(Duration::from_nanos) };
        StoreData::start_call(self, cell, call.into()).await
    }

    async fn count(&mut self, cell: u32, of: u64) -> wasmtime::Result<Result<u64, CallError>> {
        self.call_for_channel(cell, ChannelCall::Count { of }, taking!(ChannelAnswer::Count(count) => count)).await
    }

    async fn forget(&mut self, cell: u32, channels: Vec<u64>) -> wasmtime::Result<Result<(), CallError>> {
        self.call_for_channel(cell, ChannelCall::Forget { channels }, taking!(ChannelAnswer::Done => ())).await
    }
}
