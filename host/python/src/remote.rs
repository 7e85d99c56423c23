//! Connections to a server: the same lines, each a message of a WebSocket; and requests for what no line asks for, such as files.

use std::sync::Arc;

use cellar_embed::Received;
use http::header;
use pyo3::{prelude::*, types::PyBytes};
use reqwest::{Client, Method};
use tokio::runtime::Handle;

use crate::{
    EngineError, check_process,
    connection::{Carried, Connection},
    embed_refused,
    here::wait,
    refused,
};

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
    let (connection, router, requests) = Connection::new(handle.clone(), Carried::There(server), Arc::new(handler));
    let router = Arc::new(router);
    handle.spawn(cellar_embed::carry(socket, requests, move |recipient, text| {
        let router = router.clone();
        Box::pin(async move { router.route(recipient, Received::Text(text)).await })
    }));
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
