//! The tool `shell`: commands of the sandbox's shell, where they are granted.

use std::time::Duration;

use rmcp::{
    model::{CallToolResult, ContentBlock},
    service::{RequestContext, RoleServer},
};
use serde_json::json;

use super::{
    Mcp, Told, answers,
    connection::Used,
    runs::{Came, Following},
};
use crate::tenant::{CommandRequest, collect_command};

impl Mcp {
    /// True if the configuration grants commands.
    pub(super) fn has_shell(&self) -> bool {
        self.tenant.hub.file().session.commands == Some(true)
    }

    /// Runs a command to its end.
    pub(super) async fn shell(
        &self,
        session: Option<String>,
        command: &str,
        timeout: Option<Duration>,
        stdin: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Told {
        let Used { name: session, is_new, .. } = self.session(session, context).await?;
        let tenant = &self.tenant;
        tenant.check_commands(&session)?;
        let request = CommandRequest { timeout, has_input: stdin.is_some(), ..CommandRequest::line(command) };
        let place = tenant.commands.place(&session)?.into();
        let (command, driving) = tenant.command(&session, request, place).await?;
        drop(driving);
        command.give(stdin);
        let mut following = Following::new(command.run.clone(), is_new, 0, None);
        while following.go_on(context).await == Came::ToAQuestion {
            // There is nobody at a command.
            following.refuse();
        }
        let came = collect_command(&following.run, following.run.watch(0)).await?;
        let mut text = came.stdout.clone();
        if !came.stderr.is_empty() {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{gap}{}", came.stderr));
        }
        let mut text = answers::cut_text(&text);
        let end = match (came.exit_code, &came.error) {
            (Some(0), _) => None,
            (Some(status), _) => Some(format!("exit status {status}")),
            (None, error) => error.clone(),
        };
        let new = is_new.then(|| format!("session {session} is new: it has no names and no files of earlier ones"));
        for note in end.iter().chain(&new) {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{gap}({note})\n"));
        }
        let structured = json!({
            "session": session,
            "isNew": is_new,
            "exitCode": came.exit_code,
            "output": text,
            "isCut": came.is_cut,
        });
        let content = vec![ContentBlock::text(text)];
        let mut told = if end.is_some() { CallToolResult::error(content) } else { CallToolResult::success(content) };
        told.structured_content = Some(structured);
        Ok(told)
    }
}
