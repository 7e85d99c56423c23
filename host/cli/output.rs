//! Destinations of a run's events: a transcript, plain output, or JSON.

use std::io::Read;

use cellar_engine::{
    Event, EventKind, RunResult,
    artifacts::SessionArtifacts,
    event::{HostStatus, Scalar, background_lines, fork_lines},
    mime::MimeBundle,
    outcome::Failure,
    results::{OutputPolicy, View},
};

use crate::{
    notebook::Notebook,
    program::{Exit, exit_of, failed_command, status_of},
    render::{Transcript, image_line},
    report::{CliError, EXIT_CELL_FAILED, EXIT_COMPLETE, print_progress},
    terminal::{self, Cleaner, Look, Transcribed},
};
use cellar_wire::{EventJson, OutputsJson, ResultJson};

/// Follows one run.
#[derive(Debug)]
pub(crate) struct Follower {
    form: Form,
    /// The notebook that the outputs go to as well.
    notebook: Option<Box<Notebook>>,
    end: End,
    is_finished: bool,
}

/// The end of a run.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// A cell has failed.
    pub(crate) is_error: bool,
    /// Failure of the first cell that has failed.
    pub(crate) failure: Option<Failure>,
    /// Exit status of the first cell that has failed.
    status: Option<u8>,
    /// Exit status of the last `!` command that has failed.
    command: Option<u8>,
    /// Exit code of the signal that has stopped it.
    pub(crate) signal: Option<u8>,
}

impl End {
    /// Exit code of the process; of a program its own.
    pub(crate) fn exit_code(&self, is_program: bool) -> u8 {
        match self.status.or(self.command).filter(|_| is_program) {
            Some(status) => status,
            None if self.is_error => EXIT_CELL_FAILED,
            None => EXIT_COMPLETE,
        }
    }

    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunFinished { is_error, .. } => self.is_error = *is_error,
            EventKind::Status { op, fields, .. } => self.command = failed_command(op, fields).or(self.command),
            EventKind::CellFinished { outcome, .. } if self.failure.is_none() => {
                self.failure = outcome.failure();
                self.status = status_of(outcome);
            }
            _ => {}
        }
    }
}

/// Form in which the events are output.
#[derive(Debug)]
pub(crate) enum Form {
    /// Something for people.
    Transcript(Box<Transcript<Transcribed>>),
    /// The cell's own output, and nothing around it.
    Plain(Plain),
    /// The result, at the end.
    Json(Box<RunResult>),
    /// The result as a model is given it, at the end.
    Llm(Box<RunResult>, View),
    /// Each event, as it happens.
    Events,
}

impl Follower {
    pub(crate) fn new(form: Form, notebook: Option<Box<Notebook>>) -> Follower {
        Follower { form, notebook, end: End::default(), is_finished: false }
    }

    /// Sets the policy by which the result shows long outputs.
    pub(crate) fn with_policy(mut self, policy: OutputPolicy) -> Follower {
        if let Form::Json(result) | Form::Llm(result, _) = &mut self.form {
            **result = RunResult::with_policy(policy);
        }
        self
    }

    /// Returns true if this form reads the files of tables.
    pub(crate) fn reads_tables(&self) -> bool {
        matches!(self.form, Form::Llm(..))
    }

    /// Sets the artifacts, from which it reads the files of tables.
    pub(crate) fn with_artifacts(mut self, artifacts: Option<SessionArtifacts>) -> Follower {
        if let Form::Llm(_, view) = &mut self.form {
            view.artifacts = artifacts;
        }
        self
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), CliError> {
        self.end.event(event);
        self.is_finished |= matches!(event.kind, EventKind::RunFinished { .. });
        if let Some(notebook) = &mut self.notebook {
            notebook.event(event);
        }
        // Whoever reads the events sees it there.
        if let EventKind::Status { op, fields, .. } = &event.kind
            && op == HostStatus::CallWaits.as_str()
            && !matches!(self.form, Form::Events)
        {
            print_progress(&waits(fields));
        }
        match &mut self.form {
            Form::Transcript(transcript) => transcript.event(event),
            Form::Plain(plain) => plain.event(event),
            Form::Json(result) | Form::Llm(result, _) => {
                result.apply(event);
                Ok(())
            }
            Form::Events => print_line(&EventJson::from(event)),
        }
    }

    /// Ends the output, and returns how the run has ended.
    ///
    /// # Errors
    /// The output cannot be written, or the run broke off.
    pub(crate) fn finish(mut self) -> Result<End, CliError> {
        if !self.is_finished {
            return Err(CliError::BrokeOff);
        }
        if let Form::Json(result) = &mut self.form {
            result.fit_images();
        }
        match &self.form {
            Form::Json(result) => print_line(&ResultJson::from(&**result))?,
            Form::Llm(result, view) => print_line(&OutputsJson::of(result, view))?,
            _ => {}
        }
        if let Some(notebook) = self.notebook {
            notebook.save()?;
        }
        Ok(self.end)
    }
}

/// Line that says how to decide on a call that waits.
fn waits(fields: &[(String, Scalar)]) -> String {
    let text = |key: &str| match fields.iter().find(|(name, _)| name == key) {
        Some((_, Scalar::Text(text))) => text.as_str(),
        _ => "",
    };
    let (id, bridge, name) = (text("wait"), text("bridge"), text("name"));
    format!("{bridge} `{name}` waits for approval: `cellar calls approve {id}`, or `reject`")
}

/// Writes data to standard output, which is no terminal, or is to get it as it is.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print_data(bytes: &[u8]) -> Result<(), CliError> {
    terminal::write_stdout(bytes).map_err(CliError::Output)
}

/// Writes text for people to standard output, without characters that control a terminal.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    terminal::say(text).map_err(CliError::Output)
}

/// Writes all of a file to standard output. Removes what controls a terminal if the output is one, unless `is_raw`.
///
/// # Errors
/// It cannot be read, or the output cannot be written.
pub(crate) fn copy(from: &mut impl Read, is_raw: bool) -> Result<(), CliError> {
    terminal::copy(from, is_raw).map_err(CliError::Output)
}

/// Writes a value to standard output, for people to read.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
    terminal::write_json(&(text + "\n")).map_err(CliError::Output)
}

/// Writes a value to standard output, on one line.
fn print_line(value: &impl serde::Serialize) -> Result<(), CliError> {
    let mut line = serde_json::to_string(value).map_err(|error| CliError::Output(error.into()))?;
    line.push('\n');
    terminal::write_json(&line).map_err(CliError::Output)
}

/// Printer of a cell's output, to the streams that the cell prints to.
#[derive(Debug)]
pub(crate) struct Plain {
    stdout: Cleaner,
    stderr: Cleaner,
    /// Standard output stands at the start of a line.
    is_line_start: bool,
    /// Values of last expressions are not shown, as in a program.
    hides_values: bool,
}

impl Plain {
    pub(crate) fn new(hides_values: bool) -> Plain {
        let (stdout, stderr) = (Cleaner::new(Look::of_stdout()), Cleaner::new(Look::of_stderr()));
        Plain { stdout, stderr, is_line_start: true, hides_values }
    }

    fn event(&mut self, event: &Event) -> Result<(), CliError> {
        match &event.kind {
            EventKind::Stdout { text, .. } => self.write(text),
            EventKind::Stderr { text, .. } => self.tell(text),
            EventKind::Background { cell, text, left_out, .. } => self.tell(&background_lines(*cell, text, *left_out)),
            EventKind::Fork { fork, kind, .. } => match fork_lines(fork, kind) {
                Some(lines) => self.tell(&lines),
                None => Ok(()),
            },
            EventKind::Display { is_value: true, .. } if self.hides_values => Ok(()),
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => self.display(data),
            EventKind::CellFinished { outcome, .. } => {
                self.end_colors()?;
                match outcome.failure() {
                    Some(failure) => self.fail(&failure),
                    None => self.end_line(),
                }
            }
            _ => Ok(()),
        }
    }

    /// Resets colours that the cell left on, so that later output does not have them.
    fn end_colors(&mut self) -> Result<(), CliError> {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        terminal::write_stderr(stderr);
        if stdout.is_empty() { Ok(()) } else { print_data(stdout.as_bytes()) }
    }

    fn write(&mut self, text: &str) -> Result<(), CliError> {
        if text.is_empty() {
            return Ok(());
        }
        self.is_line_start = text.ends_with('\n');
        print_data(self.stdout.clean(text).as_bytes())
    }

    fn display(&mut self, bundle: &MimeBundle) -> Result<(), CliError> {
        self.end_line()?;
        // Text that only names a picture, or a type, says less than what else there is.
        let is_name = |text: &str| text.starts_with('<') && text.ends_with('>');
        let plain = || bundle.text("text/plain").filter(|text| bundle.image().is_none() && !is_name(text));
        if let Some(text) = bundle.visible_text().or_else(plain) {
            self.write(text)?;
            return self.end_line();
        }
        if let Some(json) = bundle.json() {
            self.write(json)?;
            return self.end_line();
        }
        match bundle.image() {
            Some(image) => self.tell(&format!("{}\n", image_line(&image, None))),
            None => Ok(()),
        }
    }

    /// Ends a line that the cell left open, so that later output has a line of its own.
    fn end_line(&mut self) -> Result<(), CliError> {
        if self.is_line_start {
            return Ok(());
        }
        self.write("\n")
    }

    fn fail(&mut self, failure: &Failure) -> Result<(), CliError> {
        self.end_line()?;
        match exit_of(failure) {
            Some(Exit::Status(_)) => return Ok(()),
            Some(Exit::Message(message)) => return self.tell(&format!("{message}\n")),
            None => {}
        }
        let traceback = failure.traceback.trim_end();
        let what = if traceback.is_empty() { failure.summary() } else { traceback.to_owned() };
        self.tell(&format!("{what}\n"))
    }

    fn tell(&mut self, text: &str) -> Result<(), CliError> {
        let text = self.stderr.clean(text);
        terminal::write_stderr(&text);
        Ok(())
    }
}
