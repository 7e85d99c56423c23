//! The transport to a server over HTTP: the SDK's, where a server decides less about this side.

use std::{collections::HashMap, future::Future, sync::Arc};

use cellar_core::text::describe;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use reqwest::{
    header::{HeaderName, HeaderValue},
    redirect::Policy,
};
use rmcp::{
    model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};
use sse_stream::Sse;

use crate::{client, http::HeaderTemplate};

/// Maximum size in bytes of one message of a server that answers with an event stream; the SDK has the same limit for
/// stdio.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Milliseconds that a server may have this side wait before it opens a stream again that the server has closed.
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 60_000;
/// The first code that JSON-RPC leaves to implementations.
const LOST: ErrorCode = ErrorCode(-32000);

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Failed = StreamableHttpError<reqwest::Error>;

/// The SDK's client, whose calls end when their answers do, and which does not reconnect as fast as a server says.
#[derive(Clone, Debug)]
pub(super) struct Client(reqwest::Client);

impl StreamableHttpClient for Client {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let inner = &self.0;
        let posted = inner.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            authorization,
            headers,
            MESSAGE_BYTES_MAX,
        );
        Ok(match posted.await? {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(bounded(events, id), session)
            }
            other => other,
        })
    }

    fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: Headers,
    ) -> impl Future<Output = Result<(), Failed>> + Send + '_ {
        self.0.delete_session(uri, session, authorization, headers)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        let inner = &self.0;
        let opened = inner.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event,
            authorization,
            headers,
            MESSAGE_BYTES_MAX,
        );
        Ok(bounded(opened.await?, None))
    }
}

/// The events of a stream; where the answer to a request is lost for good, that is its answer.
fn bounded(events: Events, id: Option<RequestId>) -> Events {
    let next = move |state: Option<(Events, bool)>| {
        let id = id.clone();
        async move {
            // A stream whose events are numbered is opened again where it broke.
            let (mut events, mut can_go_on) = state?;
            let lost = match events.next().await {
                Some(Ok(mut event)) => {
                    can_go_on |= event.id.is_some();
                    event.retry = event.retry.map(|retry| retry.clamp(RETRY_MS_MIN, RETRY_MS_MAX));
                    return Some((Ok(event), Some((events, can_go_on))));
                }
                // The SDK has a type for this that nobody can name.
                Some(Err(error)) if describe(&error).contains("exceeded the maximum size") => {
                    format!("the answer is larger than {} MiB", MESSAGE_BYTES_MAX >> 20)
                }
                Some(Err(error)) if can_go_on || id.is_none() => return Some((Err(error), Some((events, can_go_on)))),
                Some(Err(error)) => format!("the answer broke off: {}", describe(&error)),
                None if can_go_on => return None,
                None => "the server ended its answer before it was whole".to_owned(),
            };
            let error = ServerJsonRpcMessage::error(ErrorData::new(LOST, lost, None), id);
            Some((Ok(Sse::default().data(serde_json::to_string(&error).unwrap_or_default())), None))
        }
    };
    stream::unfold(Some((events, false)), next).boxed()
}

/// Creates the transport to a URL, with headers from the environment.
pub(super) fn http(
    url: &str,
    templates: &[(String, HeaderTemplate)],
) -> Result<StreamableHttpClientTransport<Client>, String> {
    let mut headers = HashMap::new();
    for (name, template) in templates {
        let header = name.parse().map_err(|_| format!("`{name}` is no name of a header"))?;
        let unset = |variable| format!("the environment variable {variable} is not set");
        let value = template.fill().map_err(unset)?.parse::<HeaderValue>();
        let mut value =
            value.map_err(|_| format!("what the environment holds for `{name}` is no value of a header"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    let config =
        StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers).reinit_on_expired_session(true);
    // Redirects could carry the headers to another host.
    let client = client::builder(&[])?.redirect(Policy::none()).build();
    let client = client.map_err(|error| format!("TLS cannot be set up: {}", describe(&error)))?;
    Ok(StreamableHttpClientTransport::with_client(Client(client), config))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes events through the filter, and returns the data of each event, or else its retry delay or error.
    async fn passed(events: Vec<Result<Sse, SseError>>, id: Option<i64>) -> Vec<String> {
        let shown = |event: Result<Sse, SseError>| match event {
            Ok(Sse { data: Some(data), .. }) => data,
            Ok(Sse { retry, .. }) => format!("{retry:?}"),
            Err(error) => format!("{error}"),
        };
        bounded(stream::iter(events).boxed(), id.map(RequestId::Number)).map(shown).collect().await
    }

    #[tokio::test]
    async fn a_server_neither_hurries_this_side_nor_puts_it_off() {
        let events = [0, 2_000, u64::MAX].map(|retry| Ok(Sse::default().id("1").retry(retry)));
        assert_eq!(passed(events.into(), Some(1)).await, ["Some(1000)", "Some(2000)", "Some(60000)"]);
    }

    #[tokio::test]
    async fn an_answer_that_is_lost_for_good_is_an_error_at_once() {
        let broken = || Err(SseError::Body("reset".into()));
        let lost = passed(vec![Ok(Sse::default().data("{}"))], Some(7)).await;
        assert!(lost.len() == 2 && lost[1].contains("\"id\":7") && lost[1].contains("ended its answer"), "{lost:?}");
        let lost = passed(vec![broken(), Ok(Sse::default().data("never"))], Some(7)).await;
        assert!(lost.len() == 1 && lost[0].contains("broke off: "), "{lost:?}");
        // The rest of numbered events can be asked for, and nobody waits for an answer on a stream of notices.
        assert_eq!(passed(vec![Ok(Sse::default().id("1")), broken()], Some(7)).await.len(), 2);
        assert_eq!(passed(vec![Ok(Sse::default().data("{}")), broken()], None).await.len(), 3);
    }
}
