//! Connections: how many, how long they may take to ask, and how they end.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum_core::body::Body;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use crate::{Server, gate};

/// How long the head of a request may take to come, from the moment that the connection is free for it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers of a request.
const HEADERS_MAX: usize = 100;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How soon it is tried again to accept a connection when this process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers connections until the server is over and they have ended.
pub(crate) async fn accept(server: Server, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(server.0.connections_max));
    let mut connections = JoinSet::new();
    let mut over = server.0.is_over.subscribe();
    let is_over = async move {
        let _ = over.wait_for(|over| *over).await;
    };
    let mut is_over = std::pin::pin!(is_over);
    loop {
        let permit = tokio::select! {
            () = &mut is_over => break,
            Ok(permit) = permits.clone().acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = &mut is_over => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let server = server.clone();
                connections.spawn(async move {
                    // Small answers must not wait for more.
                    let _ = stream.set_nodelay(true);
                    let mut settings = hyper::server::conn::http1::Builder::new();
                    settings
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD_TIMEOUT)
                        .max_headers(HEADERS_MAX)
                        .max_buf_size(HEAD_BYTES_MAX);
                    let asked = server.clone();
                    let service = service_fn(move |request: http::Request<Incoming>| {
                        let server = asked.clone();
                        async move { Ok::<_, Infallible>(gate::answer(server, request.map(Body::new)).await) }
                    });
                    let served = settings.serve_connection(TokioIo::new(stream), service).with_upgrades();
                    let mut served = std::pin::pin!(served);
                    let mut over = server.0.is_over.subscribe();
                    let is_over = async move { over.wait_for(|over| *over).await.is_ok() };
                    let ended = tokio::select! {
                        ended = served.as_mut() => ended,
                        _ = is_over => {
                            served.as_mut().graceful_shutdown();
                            served.await
                        }
                    };
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection broke off");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}
