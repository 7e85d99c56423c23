//! Terminals: a shell that a client types at. The line is edited here, as a terminal driver does it, and handed to the
//! shell when it is whole. An interrupt ends the shell with all that it runs; another one goes on from its state at the
//! last prompt.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use cellar_core::{sync::lock, time::later};
use cellar_engine::CommandInput;
use cellar_hub::Delivery;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};

use crate::{
    problem::Problem,
    tenant::{Command, CommandPlace, CommandRequest, End, Part, Program, Tenant, parts},
};

/// Pieces of output that wait for a reader; one that lags further misses the oldest.
const PIECES_MAX: usize = 1_024;
/// Bytes of the line that is being edited.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Time that input waits for a shell that is being started.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Longest life of a terminal whose client gives it none.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Item that a reader of a terminal receives.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Output(Bytes),
    End(End),
}

/// A terminal.
pub(super) struct Terminal {
    pub(super) pid: u32,
    editor: Mutex<Editor>,
    heard: broadcast::Sender<Bytes>,
    /// The shell that reads what is typed; none while one is started.
    shell: watch::Sender<Option<Shell>>,
    end: watch::Sender<Option<End>>,
    is_interrupted: AtomicBool,
    is_killed: AtomicBool,
}

#[derive(Clone)]
struct Shell {
    command: Arc<Command>,
    input: Arc<CommandInput>,
}

/// Reader of a terminal.
pub(super) struct Listener {
    pieces: broadcast::Receiver<Bytes>,
    end: watch::Receiver<Option<End>>,
}

impl Listener {
    /// Returns the next piece, or the end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            // The end comes behind all pieces.
            match self.pieces.try_recv() {
                Ok(piece) => return Heard::Output(piece),
                Err(broadcast::error::TryRecvError::Lagged(_)) => continue,
                Err(_) => {}
            }
            if let Some(end) = self.end.borrow().clone() {
                return Heard::End(end);
            }
            tokio::select! {
                piece = self.pieces.recv() => match piece {
                    Ok(piece) => return Heard::Output(piece),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Heard::End(killed()),
                },
                changed = self.end.changed() => if changed.is_err() {
                    return Heard::End(killed());
                },
            }
        }
    }
}

fn killed() -> End {
    End::Killed("signal: killed".to_owned())
}

/// Opens a terminal of this size, and starts its shell.
pub(super) fn open(
    tenant: &Arc<Tenant>,
    session: &str,
    request: CommandRequest,
    place: Arc<CommandPlace>,
    (rows, columns): (u16, u16),
) -> (Arc<Terminal>, Listener) {
    let terminal = Arc::new(Terminal {
        pid: place.pid,
        editor: Mutex::default(),
        heard: broadcast::Sender::new(PIECES_MAX),
        shell: watch::Sender::new(None),
        end: watch::Sender::new(None),
        is_interrupted: AtomicBool::new(false),
        is_killed: AtomicBool::new(false),
    });
    let listener = terminal.listen();
    let mut request = request;
    for (name, value) in [("LINES", rows), ("COLUMNS", columns)] {
        request.environment.push((name.to_owned(), value.to_string()));
    }
    let (tenant, session, driven) = (tenant.clone(), session.to_owned(), terminal.clone());
    tokio::spawn(async move {
        let end = driven.drive(&tenant, &session, request, place).await;
        driven.shell.send_replace(None);
        driven.end.send_replace(Some(end));
    });
    (terminal, listener)
}

impl Terminal {
    /// Returns a reader of what comes from now on.
    pub(super) fn listen(&self) -> Listener {
        Listener { pieces: self.heard.subscribe(), end: self.end.subscribe() }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    pub(super) async fn ended(&self) {
        let _ = self.end.subscribe().wait_for(Option::is_some).await;
    }

    pub(super) fn kill(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
        self.stop();
    }

    fn stop(&self) {
        if let Some(shell) = &*self.shell.borrow() {
            shell.command.run.cancel();
        }
    }

    /// Runs one shell after the other, until one ends by itself.
    async fn drive(
        &self,
        tenant: &Arc<Tenant>,
        session: &str,
        request: CommandRequest,
        place: Arc<CommandPlace>,
    ) -> End {
        let last = later(Instant::now(), request.timeout.unwrap_or(LIFE_MAX).min(LIFE_MAX));
        let mut state = None;
        while !self.is_killed.load(Ordering::SeqCst) {
            let request = CommandRequest {
                program: Program::Terminal(state.clone()),
                folder: request.folder.clone(),
                environment: request.environment.clone(),
                timeout: Some(last.saturating_duration_since(Instant::now())),
                has_input: true,
                is_owned: true,
                on_disconnect: request.on_disconnect,
            };
            let command = match tenant.command(session, request, place.clone()).await {
                Ok((command, driving)) => {
                    drop(driving);
                    command
                }
                Err(problem) => return End::Killed(problem.words()),
            };
            let mut reader = command.run.own(0);
            let Some(input) = command.input() else { return killed() };
            self.shell.send_replace(Some(Shell { command: command.clone(), input: input.clone() }));
            if self.is_killed.load(Ordering::SeqCst) {
                command.run.cancel();
            }
            let mut end = killed();
            while let Some(delivery) = reader.next().await {
                let Delivery::Event(event) = delivery else { continue };
                for part in parts(&event.kind) {
                    match part {
                        Part::Out(bytes) | Part::Err(bytes) => self.show(&bytes),
                        Part::End(ended) => end = ended,
                    }
                }
            }
            if let Err(error) = command.run.result().await {
                return End::Killed(Problem::from(error).words());
            }
            if !self.is_interrupted.swap(false, Ordering::SeqCst) {
                return end;
            }
            state = input.reply().or(state);
        }
        killed()
    }

    /// Shows output, with lines that begin at the left.
    fn show(&self, bytes: &[u8]) {
        let mut shown = Vec::with_capacity(bytes.len());
        let mut before = 0;
        for byte in bytes {
            if *byte == b'\n' && before != b'\r' {
                shown.push(b'\r');
            }
            shown.push(*byte);
            before = *byte;
        }
        // It fails while nobody listens.
        let _ = self.heard.send(shown.into());
    }

    /// Takes what a client types.
    ///
    /// # Errors
    /// The terminal has ended.
    pub(super) async fn type_in(&self, bytes: &[u8]) -> Result<(), Problem> {
        let actions = lock(&self.editor).take(bytes);
        for action in actions {
            match action {
                Action::Echo(bytes) => drop(self.heard.send(bytes.into())),
                Action::Input(bytes) => self.write(&bytes).await?,
                Action::Interrupt => {
                    self.is_interrupted.store(true, Ordering::SeqCst);
                    // Nothing more is for that shell.
                    if let Some(shell) = self.shell.send_replace(None) {
                        shell.command.run.cancel();
                    }
                }
            }
        }
        Ok(())
    }

    async fn write(&self, bytes: &[u8]) -> Result<(), Problem> {
        let gone = || Problem::bad("the terminal has ended");
        let mut shells = self.shell.subscribe();
        let mut end = self.end.subscribe();
        let shell = tokio::select! {
            shell = shells.wait_for(Option::is_some) => shell.ok().and_then(|shell| shell.clone()),
            _ = end.wait_for(Option::is_some) => None,
            () = tokio::time::sleep(STARTS_WITHIN) => None,
        };
        let shell = shell.ok_or_else(gone)?;
        shell.input.write(bytes).await;
        Ok(())
    }

    /// Tells the shell how large the terminal is; what runs learns of it when it reads.
    pub(super) async fn resize(&self, (rows, columns): (u16, u16)) {
        let _ = self.write(format!("\0{rows} {columns}\n").as_bytes()).await;
    }
}

/// Consequence of something typed.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Echo(Vec<u8>),
    Input(Vec<u8>),
    Interrupt,
}

/// The line that is being edited.
#[derive(Debug, Default)]
struct Editor {
    line: Vec<u8>,
    escape: Escape,
}

/// Position in an escape sequence, as keys without a character send them. They edit nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    Outside,
    Begun,
    Within,
}

impl Editor {
    fn take(&mut self, bytes: &[u8]) -> Vec<Action> {
        let (mut actions, mut echo) = (Vec::new(), Vec::new());
        for byte in bytes {
            self.escape = match (self.escape, byte) {
                (Escape::Outside, 0x1b) => Escape::Begun,
                (Escape::Begun, b'[' | b'O') => Escape::Within,
                (Escape::Within, 0x40..=0x7e) | (Escape::Begun, _) => {
                    self.escape = Escape::Outside;
                    continue;
                }
                (state, _) => state,
            };
            if self.escape != Escape::Outside {
                continue;
            }
            let consequence = match byte {
                b'\r' | b'\n' => {
                    echo.extend_from_slice(b"\r\n");
                    self.line.push(b'\n');
                    Some(Action::Input(std::mem::take(&mut self.line)))
                }
                3 => {
                    echo.extend_from_slice(b"^C\r\n");
                    self.line.clear();
                    Some(Action::Interrupt)
                }
                // The end of input, or of a line without an end.
                4 if self.line.is_empty() => Some(Action::Input(vec![4])),
                4 => Some(Action::Input(std::mem::take(&mut self.line))),
                8 | 0x7f => {
                    self.erase(1, &mut echo);
                    None
                }
                0x15 => {
                    self.erase(usize::MAX, &mut echo);
                    None
                }
                b'\t' | 0x20.. if self.line.len() < LINE_BYTES_MAX => {
                    self.line.push(*byte);
                    echo.push(*byte);
                    None
                }
                _ => None,
            };
            if let Some(consequence) = consequence {
                actions.extend((!echo.is_empty()).then(|| Action::Echo(std::mem::take(&mut echo))));
                actions.push(consequence);
            }
        }
        actions.extend((!echo.is_empty()).then_some(Action::Echo(echo)));
        actions
    }

    /// Erases characters at the end of the line.
    fn erase(&mut self, count: usize, echo: &mut Vec<u8>) {
        for _ in 0..count {
            let Some(mut last) = self.line.pop() else { return };
            while last & 0xc0 == 0x80
                && let Some(before) = self.line.pop()
            {
                last = before;
            }
            echo.extend_from_slice(b"\x08 \x08");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(editor: &mut Editor, bytes: &[u8]) -> (String, Vec<Action>) {
        let mut echo = Vec::new();
        let mut others = Vec::new();
        for action in editor.take(bytes) {
            match action {
                Action::Echo(bytes) => echo.extend(bytes),
                other => others.push(other),
            }
        }
        (String::from_utf8(echo).expect("text"), others)
    }

    #[test]
    fn lines_are_edited_and_echoed() {
        let mut editor = Editor::default();
        assert_eq!(
            typed(&mut editor, b"lx\x7fs\r"),
            ("lx\x08 \x08s\r\n".to_owned(), vec![Action::Input(b"ls\n".to_vec())])
        );
        assert_eq!(typed(&mut editor, "é\x7fa\x1b[A\x15b\n".as_bytes()).1, [Action::Input(b"b\n".to_vec())]);
        assert_eq!(typed(&mut editor, b"abc\x03"), ("abc^C\r\n".to_owned(), vec![Action::Interrupt]));
        assert_eq!(typed(&mut editor, b"\x04").1, [Action::Input(vec![4])]);
        assert_eq!(typed(&mut editor, b"a\x04").1, [Action::Input(b"a".to_vec())]);
        assert_eq!(typed(&mut editor, b"\0\x01").1, []);
        let long = vec![b'x'; LINE_BYTES_MAX + 10];
        typed(&mut editor, &long);
        assert_eq!(editor.line.len(), LINE_BYTES_MAX);
    }
}
