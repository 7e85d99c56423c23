//! The connection of a client to a kernel.

use std::time::Duration;

use cellar_jupyter::{Client, FRAME_BYTES_MAX, Form, Frame};
use futures::{SinkExt, StreamExt};
use http::request::Parts;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use super::kernels::{Entry, Kernels};
use crate::{
    access::Grant,
    http::{
        State,
        websocket::{Account, WebSocket, speaks, upgrade},
    },
    problem::{Answer, Problem},
};

/// Interval of pings to a client.
const PING: Duration = Duration::from_secs(30);
/// Timeout of sending the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects a client to a kernel, if there is a permit.
pub(super) fn connect(state: &State, entry: &Entry, kernels: &Kernels, (parts, grant): (Parts, Grant)) -> Answer {
    let is_newer = speaks(&parts.headers, Form::OFFSETS);
    let form = if is_newer { Form::Offsets } else { Form::Json };
    let (response, connection) =
        upgrade(parts, is_newer.then_some(Form::OFFSETS), FRAME_BYTES_MAX, &kernels.tenant.buffers)?;
    let permit = state.shares.take(&kernels.tenant.name)?;
    let (client, room) = entry.kernel.connect(form).zip(kernels.connection()).ok_or_else(|| {
        let detail = "so many clients are connected that there is no room for another";
        Problem::limit("clients", detail, Duration::from_secs(5))
    })?;
    let over = state.lifecycle.ended();
    tokio::spawn(async move {
        let mut revoked = std::pin::pin!(grant.revoked());
        tokio::select! {
            socket = connection => if let Some(socket) = socket {
                carry(socket, client, over, revoked).await;
            },
            () = &mut revoked => {}
        }
        drop((room, permit));
    });
    Ok(response)
}

/// Carries messages both ways, until the client, the kernel or the server ends the connection, or its token is not valid
/// any more.
async fn carry(
    (socket, account): (WebSocket, Account),
    client: Client,
    over: impl Future<Output = ()>,
    revoked: impl Future<Output = ()>,
) {
    let Client { hearing, mut speaking } = client;
    let (mut sink, mut stream) = socket.split();
    let stalled = speaking.stalled();
    let reading = async {
        while let Some(Ok(message)) = stream.next().await {
            let frame = match message {
                Message::Text(text) => Frame::Text(text.as_str().to_owned()),
                Message::Binary(bytes) => Frame::Binary(bytes.into()),
                Message::Close(_) => return,
                // They are answered below this.
                _ => continue,
            };
            let lease = account.message();
            if !hearing.hear(frame).await {
                return;
            }
            drop(lease);
        }
    };
    let mut over = std::pin::pin!(over);
    let writing = async {
        let mut ping = tokio::time::interval(PING);
        loop {
            let (message, room) = tokio::select! {
                next = speaking.next() => match next {
                    Some((Frame::Text(text), room)) => (Message::text(text), Some(room)),
                    Some((Frame::Binary(bytes), room)) => (Message::binary(bytes), Some(room)),
                    None => return CloseCode::Normal,
                },
                _ = ping.tick() => (Message::Ping(Vec::new().into()), None),
                () = &mut over => return CloseCode::Away,
            };
            if sink.send(message).await.is_err() {
                return CloseCode::Abnormal;
            }
            drop(room);
        }
    };
    let code = tokio::select! {
        () = reading => CloseCode::Normal,
        code = writing => code,
        () = stalled => CloseCode::Policy,
        // THREAT: T02
        () = revoked => CloseCode::Policy,
    };
    drop(hearing);
    let goodbye = Message::Close(Some(CloseFrame { code, reason: "".into() }));
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, sink.send(goodbye)).await;
}
