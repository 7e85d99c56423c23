//! Connections to a server: the same lines, each a message of a WebSocket.

use std::sync::Arc;

use cellar_hub::LineRead;
use futures::{SinkExt, StreamExt};
use pyo3::prelude::*;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    connection::{Connection, Recipient, Told},
    embed_refused,
};

/// Head of a line.
#[derive(Deserialize)]
struct Head {
    r#type: String,
    id: Option<String>,
}

/// Connects to the server at `url`. Blocks.
///
/// # Errors
/// The server cannot be reached, or refuses.
pub(crate) fn connect(handle: &Handle, handler: Py<PyAny>, url: &str, token: &str) -> PyResult<Connection> {
    let socket = handle.block_on(cellar_embed::open_socket(url, token)).map_err(embed_refused)?;
    let (connection, router, mut requests) = Connection::new(handle.clone(), None, Arc::new(handler));
    handle.spawn(async move {
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
                router.route(recipient, Told::Text(text)).await;
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
    });
    Ok(connection)
}
