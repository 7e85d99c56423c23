//! Connections to a server: the same lines, each a message of a WebSocket.

use std::{io, sync::Arc, time::Duration};

use cellar_hub::LineRead;
use futures::{SinkExt, StreamExt, future::BoxFuture};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use tokio::{runtime::Handle, sync::mpsc};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    Connection, EmbedError, Handler,
    connection::{Received, Recipient},
};

/// The subprotocol.
const PROTOCOL: &str = "cellar.v1";
/// Bytes of a message of a server: the largest result, as JSON.
const MESSAGE_BYTES_MAX: usize = 512 << 20;
/// Timeout of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Head of a line.
#[derive(Deserialize)]
struct Head {
    r#type: String,
    id: Option<String>,
}

/// Connects to the server at `url`.
///
/// # Errors
/// The server cannot be reached, or refuses.
///
/// # Cancel safety
/// Dropped, it gives the connection up.
pub(crate) async fn connect(
    handle: &Handle,
    handler: Handler,
    url: &str,
    token: &str,
) -> Result<Connection, EmbedError> {
    let socket = open_socket(url, token).await?;
    let (connection, router, requests) = Connection::new(None, handler);
    let router = Arc::new(router);
    handle.spawn(carry(socket, requests, move |recipient, text| {
        let router = router.clone();
        Box::pin(async move { router.route(recipient, Received::Text(text)).await })
    }));
    Ok(connection)
}

/// Carries requests to a server and its answers back, until either side ends. `route` takes each answer, the text of JSON.
///
/// # Cancel safety
/// Dropped, it ends the connection.
pub async fn carry(
    socket: WebSocketStream<reqwest::Upgraded>,
    mut requests: mpsc::Receiver<io::Result<LineRead>>,
    route: impl Fn(Recipient, String) -> BoxFuture<'static, ()>,
) {
    let (mut sink, mut stream) = socket.split();
    let reading = async {
        while let Some(Ok(message)) = stream.next().await {
            let Message::Text(text) = message else { continue };
            let text = text.as_str().to_owned();
            let Ok(head) = serde_json::from_str::<Head>(&text) else { continue };
            let recipient = match (&*head.r#type, head.id) {
                ("call" | "call_cancelled" | "background", _) => Recipient::Handler,
                (kind, Some(id)) => Recipient::Request { id, is_event: kind == "event" },
                _ => Recipient::Nobody,
            };
            route(recipient, text).await;
        }
    };
    let writing = async {
        while let Some(Ok(line)) = requests.recv().await {
            let LineRead::Whole(bytes) = line else { continue };
            let text = String::from_utf8(bytes).unwrap_or_default();
            if sink.send(Message::text(text)).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

/// Opens a WebSocket that carries lines to the server at `url`, each a text message.
///
/// # Errors
/// The server cannot be reached within 30 seconds, or refuses.
///
/// # Cancel safety
/// Dropped, it gives the connection up.
pub async fn open_socket(url: &str, token: &str) -> Result<WebSocketStream<reqwest::Upgraded>, EmbedError> {
    let opening = tokio::time::timeout(CONNECT_TIMEOUT, open(url, token));
    opening.await.map_err(|error| EmbedError::of("connect", &error))?
}

async fn open(url: &str, token: &str) -> Result<WebSocketStream<reqwest::Upgraded>, EmbedError> {
    let failed = |error: reqwest::Error| EmbedError::of("connect", &error);
    let builder = cellar_bridges::http_client(&[]).map_err(|what| EmbedError::new("connect", what))?;
    let client = builder.http1_only().build().map_err(failed)?;
    let key = generate_key();
    let url = format!("{}/v1/stdio", url.trim_end_matches('/'));
    let request = client
        .get(url)
        .bearer_auth(token)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .header(header::SEC_WEBSOCKET_KEY, &key);
    let response = request.send().await.map_err(failed)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = problem["detail"].as_str().map_or_else(|| format!("the server answered {status}"), str::to_owned);
        return Err(EmbedError::new(problem["code"].as_str().unwrap_or("connect"), detail));
    }
    let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
    if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(EmbedError::new("connect", "the server does not speak WebSocket"));
    }
    let upgraded = response.upgrade().await.map_err(failed)?;
    let config =
        WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX)).max_frame_size(Some(MESSAGE_BYTES_MAX));
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
}
