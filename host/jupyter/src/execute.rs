//! Running a cell: a request becomes a run of the hub, and its events become messages.

use std::sync::Arc;

use cellar_core::{sync::lock, text::describe};
use cellar_engine::{
    Cell, CellId, Event, EventKind, Language, Session, config::RunOptions, event::fork_lines, mime::MimeBundle,
    outcome::FailureKind,
};
use cellar_hub::{Delivery, OwnSession};
use cellar_wire::bundle_value;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

use crate::{
    kernel::{Asked, Kernel, Shell, Trouble, failed},
    magic,
    message::{Fault, Message},
};

/// Expressions that a request may have evaluated behind its cell.
const EXPRESSIONS_MAX: usize = 64;

/// Value of a cell, as its events give it.
#[derive(Debug, Default)]
struct Told {
    value: Option<Map<String, Value>>,
}

/// Request that a cell runs for: decides whether its output is published, and whether its client answers input.
struct Audience<'a> {
    message: &'a Message,
    is_silent: bool,
    answers_input: bool,
}

impl Kernel {
    /// Answers an `execute_request`. Cells that wait behind it are given up if it fails, unless the request says otherwise: those
    /// that were sent before anybody heard of the failure.
    ///
    /// # Errors
    /// The request is not valid.
    pub(crate) async fn execute(&self, message: &Message, shell: &mut Shell) -> Result<Value, Fault> {
        let content = &message.content;
        let code = content.text("code")?;
        let is_silent = content.flag("silent", false)?;
        let is_stored = content.flag("store_history", !is_silent)? && !is_silent;
        let expressions = content.texts("user_expressions")?;
        let answers_input = content.flag("allow_stdin", true)?;
        let stops = content.flag("stop_on_error", true)?;
        if expressions.len() > EXPRESSIONS_MAX {
            return Err(Fault::new(format!("content.user_expressions: at most {EXPRESSIONS_MAX} are evaluated")));
        }
        let mut interrupts = self.interrupts();
        let own = tokio::select! {
            own = self.own() => own,
            _ = interrupts.changed() => Err(interrupted()),
        };
        let number = own.as_ref().map_or(0, |own| lock(&self.history).number(own.session().next_cell()));
        let parent = &message.header;
        if !is_silent {
            self.publish(parent, "execute_input", &json!({"code": code, "execution_count": number})).await;
        }
        let audience = Audience { message, is_silent, answers_input };
        let ended = match own {
            Err(trouble) => Err(trouble),
            Ok(_) if code.trim().is_empty() => Ok(Map::new()),
            Ok(own) if magic::is_magic(code) => self.magic(code, &own, &audience, &mut interrupts).await,
            Ok(own) => match self.run(code, &own, &audience, &mut interrupts).await {
                Ok((cell, _)) => {
                    self.store(is_stored, cell);
                    Ok(self.evaluate(&expressions, &own, message, &mut interrupts).await)
                }
                Err((cell, trouble)) => {
                    self.store(is_stored, cell);
                    Err(trouble)
                }
            },
        };
        Ok(match ended {
            Ok(values) => {
                json!({"status": "ok", "execution_count": number, "user_expressions": values, "payload": []})
            }
            Err(trouble) => {
                if stops {
                    shell.give_up().await;
                }
                let mut answer = trouble.content();
                if !is_silent {
                    self.publish(parent, "error", &Value::Object(answer.clone())).await;
                }
                answer.insert("status".to_owned(), "error".into());
                answer.insert("execution_count".to_owned(), number.into());
                answer.insert("user_expressions".to_owned(), json!({}));
                answer.insert("payload".to_owned(), json!([]));
                Value::Object(answer)
            }
        })
    }

    fn store(&self, is_stored: bool, cell: Option<CellId>) {
        if let Some(cell) = cell.filter(|_| is_stored) {
            lock(&self.history).store(cell);
        }
    }

    async fn magic(
        &self,
        code: &str,
        own: &OwnSession,
        audience: &Audience<'_>,
        interrupts: &mut watch::Receiver<u64>,
    ) -> Result<Map<String, Value>, Trouble> {
        let done = tokio::select! {
            done = magic::run(code, own.session(), self.language, &self.folders) => done,
            _ = interrupts.changed() => return Err(interrupted()),
        };
        match done {
            Ok(text) => {
                audience.show(self, "stream", json!({"name": "stdout", "text": text})).await;
                Ok(Map::new())
            }
            Err(error) => Err(Trouble::new(error.name(), error.to_string())),
        }
    }

    /// Runs a cell to its end. Returns the cell's number, if it got one, and its value.
    async fn run(
        &self,
        code: &str,
        own: &OwnSession,
        audience: &Audience<'_>,
        interrupts: &mut watch::Receiver<u64>,
    ) -> Result<(Option<CellId>, Told), (Option<CellId>, Trouble)> {
        let refused = |error: &cellar_hub::HubError| {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Trouble::new("CellarError", format!("{}{hint}", describe(error)))
        };
        let run = own.start(vec![Cell::new(self.language, code)], false, RunOptions::default());
        let run = run.map_err(|error| (None, refused(&error)))?;
        let mut reader = run.own(0);
        *lock(&self.run) = Some(run.clone());
        // An interrupt that came before could not find the run.
        if interrupts.has_changed().unwrap_or(false) {
            interrupts.mark_unchanged();
            run.cancel();
        }
        let (mut cell, mut told, mut failure) = (None, Told::default(), None);
        let mut is_ended = false;
        while let Some(delivery) = reader.next().await {
            // Nothing is dropped that the owner of a run has not read.
            let Delivery::Event(event) = delivery else { continue };
            match &event.kind {
                EventKind::CellStarted { cell: id, .. } => {
                    cell = Some(*id);
                    lock(&self.history).begin(*id, &audience.message.header);
                }
                EventKind::CellFinished { outcome, .. } => {
                    is_ended = true;
                    failure = outcome.failure();
                }
                EventKind::InputRequest { request_id, prompt, .. } => {
                    self.ask(own.session(), request_id, prompt, audience).await;
                }
                _ => self.event(&event, audience, cell, &mut told).await,
            }
        }
        *lock(&self.run) = None;
        lock(&self.asked).clear();
        if let Err(error) = run.result().await {
            return Err((cell, refused(&error)));
        }
        match failure {
            Some(failure) => {
                let traceback = failure.traceback.trim_end().lines().map(str::to_owned).collect();
                // A subclass of it is raised; clients look for this name.
                let is_keyboard = failure.kind == FailureKind::Interrupted && self.language == Language::Python;
                let name = if is_keyboard { "KeyboardInterrupt".to_owned() } else { failure.name };
                Err((cell, Trouble { name, message: failure.message, traceback }))
            }
            None if !is_ended => Err((cell, Trouble::new("CellarError", "the run broke off"))),
            None => Ok((cell, told)),
        }
    }

    /// Publishes what a cell shows.
    async fn event(&self, event: &Arc<Event>, audience: &Audience<'_>, cell: Option<CellId>, told: &mut Told) {
        let transient = |id: &Option<String>| id.as_ref().map_or(json!({}), |id| json!({"display_id": id}));
        match &event.kind {
            EventKind::Stdout { text, .. } => {
                audience.show(self, "stream", json!({"name": "stdout", "text": text})).await
            }
            EventKind::Stderr { text, .. } => {
                audience.show(self, "stream", json!({"name": "stderr", "text": text})).await
            }
            EventKind::Display { data, display_id, is_value, .. } => {
                let data = shown(data);
                if *is_value {
                    told.value = Some(data.clone());
                }
                let mut content = json!({"data": data, "metadata": {}, "transient": transient(display_id)});
                let kind = if *is_value { "execute_result" } else { "display_data" };
                if *is_value {
                    content["execution_count"] = cell.map_or(0, |cell| lock(&self.history).number(cell)).into();
                }
                audience.show(self, kind, content).await;
            }
            EventKind::UpdateDisplay { data, display_id, .. } => {
                let content = json!({"data": shown(data), "metadata": {}, "transient": {"display_id": display_id}});
                audience.show(self, "update_display_data", content).await;
            }
            EventKind::Fork { fork, kind, .. } => {
                if let Some(lines) = fork_lines(fork, kind) {
                    audience.show(self, "stream", json!({"name": "stderr", "text": lines})).await;
                }
            }
            EventKind::ClearOutput { wait, .. } => audience.show(self, "clear_output", json!({"wait": wait})).await,
            // Background: told when it was written. The others have no place in a notebook, or are told by the caller.
            EventKind::RunStarted { .. }
            | EventKind::CellStarted { .. }
            | EventKind::Background { .. }
            | EventKind::Status { .. }
            | EventKind::CallStarted { .. }
            | EventKind::CallFinished { .. }
            | EventKind::Fetched { .. }
            | EventKind::Bound { .. }
            | EventKind::InputRequest { .. }
            | EventKind::CellFinished { .. }
            | EventKind::RunFinished { .. } => {}
        }
    }

    /// Has the client that runs a cell asked for input; the cell reads the end of its input when that cannot be.
    async fn ask(&self, session: &Session, request: &str, prompt: &str, audience: &Audience<'_>) {
        let message = audience.message;
        let peer = self.outlet.answerer(message).filter(|_| audience.answers_input);
        let Some(peer) = peer else {
            // It may have been given up meanwhile.
            let _ = session.end_input(request);
            let text = "this client answers no input(): the cell finds the end of its input\n";
            return audience.show(self, "stream", json!({"name": "stderr", "text": text})).await;
        };
        lock(&self.asked).push_back(Asked {
            request: request.to_owned(),
            prompt: prompt.to_owned(),
            parent: message.header.clone(),
            peer,
            is_sent: false,
        });
        self.ask_first().await;
    }

    /// Sends the request for input that is due, unless it was sent: clients show one at a time.
    async fn ask_first(&self) {
        let (peer, parent, content) = {
            let mut queue = lock(&self.asked);
            let Some(asked) = queue.front_mut().filter(|asked| !asked.is_sent) else { return };
            asked.is_sent = true;
            (asked.peer, asked.parent.clone(), json!({"prompt": asked.prompt, "password": false}))
        };
        self.outlet.ask(peer, &parent, &content).await;
    }

    /// Hands answers to the cells that wait for them.
    pub(crate) async fn take_input(self: Arc<Kernel>, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.recv().await {
            let value = match message.content.text("value") {
                Ok(value) if message.kind == "input_reply" => value.to_owned(),
                Ok(_) => {
                    tracing::warn!(kind = message.kind, "only input_reply is expected on the stdin channel");
                    continue;
                }
                Err(fault) => {
                    tracing::warn!(error = %fault, "an answer to input() was refused");
                    continue;
                }
            };
            let Some(asked) = lock(&self.asked).pop_front() else {
                tracing::debug!("input that nobody waits for");
                continue;
            };
            if let Ok(own) = self.own().await
                && let Err(error) = own.session().submit_input(&asked.request, value)
            {
                tracing::debug!(%error, "input came too late");
            }
            self.ask_first().await;
        }
    }

    /// Evaluates expressions, each in a run of its own.
    async fn evaluate(
        &self,
        expressions: &[(&str, &str)],
        own: &OwnSession,
        message: &Message,
        interrupts: &mut watch::Receiver<u64>,
    ) -> Map<String, Value> {
        let mut values = Map::new();
        let audience = Audience { message, is_silent: true, answers_input: false };
        for (name, expression) in expressions {
            let value = match self.run(expression, own, &audience, interrupts).await {
                Ok((_, told)) => {
                    let data = told.value.unwrap_or_else(|| nothing(self.language));
                    json!({"status": "ok", "data": data, "metadata": {}})
                }
                Err((_, trouble)) => failed(&trouble),
            };
            values.insert((*name).to_owned(), value);
        }
        values
    }
}

impl Audience<'_> {
    async fn show(&self, kernel: &Kernel, kind: &str, content: Value) {
        if !self.is_silent {
            kernel.publish(&self.message.header, kind, &content).await;
        }
    }
}

/// A display as notebooks have it. Lists and plain objects come with their JSON, which programs want; in a notebook they are
/// shown as their language prints them, and clients would draw a tree instead.
pub fn shown(data: &MimeBundle) -> Map<String, Value> {
    let mut shown = bundle_value(data);
    let is_print = |text: &str| !(text.starts_with('<') && text.ends_with('>'));
    if shown.len() == 2 && shown.get("text/plain").and_then(Value::as_str).is_some_and(is_print) {
        shown.remove("application/json");
    }
    shown
}

/// Returns the text that a language prints for the value that is not displayed.
fn nothing(language: Language) -> Map<String, Value> {
    let text = if language == Language::JavaScript { "undefined" } else { "None" };
    Map::from_iter([("text/plain".to_owned(), Value::from(text))])
}

fn interrupted() -> Trouble {
    Trouble::new("KeyboardInterrupt", "the kernel was interrupted before the cell began")
}
