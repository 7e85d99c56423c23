//! Connections to a server: the same lines, each a message of a WebSocket; and requests for what no line asks for, such as files.

use std::sync::Arc;

use cellar_hub::LineRead;
use futures::{SinkExt, StreamExt};
use http::header;
use pyo3::{prelude::*, types::PyBytes};
use reqwest::{Client, Method};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    EngineError, check_process,
    connection::{Carried, Connection, Recipient, Told},
    embed_refused,
    here::wait,
    refused,
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
    let url = url.trim_end_matches('/');
    let builder = cellar_bridges::http_client(&[]).map_err(|what| words("connect", what))?;
    let client = builder.http1_only().build().map_err(|error| refused("connect", &error))?;
    let socket = handle.block_on(cellar_embed::open_socket(url, token)).map_err(embed_refused)?;
    let server = Server {
        handle: handle.clone(),
        client,
        url: url.to_owned(),
        token: token.to_owned(),
        process: std::process::id(),
    };
    let (connection, router, mut requests) = Connection::new(handle.clone(), Carried::There(server), Arc::new(handler));
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

/// A refusal with this code.
fn words(code: &str, what: String) -> PyErr {
    EngineError::new_err((code.to_owned(), what, None::<String>))
}

/// A server, for requests that are no lines.
#[pyclass(frozen, module = "cellar._cellar")]
#[derive(Clone)]
pub(crate) struct Server {
    handle: Handle,
    client: Client,
    url: String,
    token: String,
    process: u32,
}

#[pymethods]
impl Server {
    /// Sends a request, and returns the status, the content type and the body of the answer. `path` begins with a slash and is
    /// encoded as paths of URLs are.
    #[pyo3(signature = (method, path, body=None, content_type=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: Option<&str>,
    ) -> PyResult<(u16, String, Bound<'py, PyBytes>)> {
        check_process(self.process)?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| refused("usage", &error))?;
        let mut request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request = request.body(body.unwrap_or_default());
        let answer = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let kind = kind.unwrap_or_default().to_owned();
            Ok::<_, reqwest::Error>((status, kind, response.bytes().await?))
        };
        let (status, kind, bytes) = wait(py, &self.handle, answer)?.map_err(|error| refused("connect", &error))?;
        Ok((status, kind, PyBytes::new(py, &bytes)))
    }
}
