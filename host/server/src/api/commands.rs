//! Commands of the shell in sessions.

use cellar_hub::{OnDisconnect, RunHandle};
use cellar_wire::command_body;
use http::StatusCode;

use super::{
    runs::{DISCONNECT_GRACE, accepted},
    stream::{self, Form},
};
use crate::{
    http::{Call, answers, files::guest_path},
    problem::{Answer, Problem},
    tenant::{CommandRequest, Repeat, Tenant, collect_command, fingerprint},
};

/// `POST /v1/sessions/{session}/commands`
pub(crate) async fn start(mut call: Call, session: &str) -> Answer {
    let bytes = call.body().await?;
    let tenant = &call.tenant;
    let body = command_body(&bytes)?;
    let what = fingerprint(&("command", session, &bytes[..]));
    let form = Form::of(&call.parts.headers);
    match tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(run) => deliver(tenant, tenant.hub.run(&run)?, true, form).await,
        Repeat::First(ticket) => {
            tenant.session(session).await?;
            tenant.check_commands(session)?;
            let is_kept = body.is_kept || form == Form::Later;
            let folder = body.cwd.as_deref().map(folder).transpose()?;
            let request = CommandRequest {
                folder,
                environment: body.environment,
                timeout: body.timeout,
                has_input: body.stdin.is_some(),
                is_owned: form != Form::Later,
                on_disconnect: if is_kept { OnDisconnect::Continue } else { OnDisconnect::Cancel(DISCONNECT_GRACE) },
                ..CommandRequest::line(&body.command)
            };
            let place = tenant.commands.place(session)?.into();
            let (command, driving) = tenant.command(session, request, place).await?;
            drop(driving);
            if let Some(ticket) = ticket {
                ticket.made(command.run.id());
            }
            command.give(body.stdin);
            deliver(tenant, command.run.clone(), false, form).await
        }
    }
}

/// Folder as cells see it.
fn folder(cwd: &str) -> Result<String, Problem> {
    if cwd.starts_with('/') {
        return Ok(cwd.to_owned());
    }
    let names: Vec<&str> = cwd.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    guest_path(&names)
}

/// Responds with what a command comes to, or with its events.
async fn deliver(tenant: &Tenant, run: RunHandle, is_again: bool, form: Form) -> Answer {
    if form == Form::Later {
        return accepted(&run);
    }
    let reader = if is_again { run.rejoin(0) } else { run.own(0) };
    if form != Form::Result {
        return stream::follow(run, reader, form, &tenant.calls).await;
    }
    let mut response = answers::json(StatusCode::OK, &collect_command(&run, reader).await?)?;
    stream::name(&mut response, &run);
    Ok(response)
}
