//! `cellar repl`: a prompt for cells of both languages, in one session.
//!
//! The editor blocks, so it has a thread of its own; cells run on the runtime. An interrupt while a cell runs stops that
//! cell and keeps the session.

mod editor;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cellar_config::SessionRequest;
use cellar_engine::{Cell, Error, EventKind, Language, Session, config::RunOptions};
use cellar_hub::OwnSession;
use reedline::Signal;

use crate::{
    args::{Folders, OutputArguments, ReplArguments},
    output::print,
    render::{Options, Transcript},
    report::{CliError, EXIT_COMPLETE, print_error, print_progress},
    run::next_event,
    setup,
    signals::Interrupts,
    terminal::{Look, Transcribed, char_width, escaped, padded, width},
};
use editor::Editor;

const HELP: &str = "\
  :py  :js       write cells in Python or JavaScript
  :vars          list the names that cells have bound
  :reset         give the language a fresh kernel
  :help          this
  :quit          leave; so do exit, quit and Ctrl-D

  NAME?          help on a name
  Tab            complete; Ctrl-R searches the history
  Ctrl-C         stop the cell that runs, or drop what is being typed
  Ctrl-D         where a cell asks for input: its end
";

/// Reads cells and runs them until there are no more.
///
/// # Errors
/// There is no terminal, the session cannot be opened, or the output cannot be written.
pub(crate) async fn repl(folders: &Folders, arguments: ReplArguments) -> Result<u8, CliError> {
    let hint = "run cells from standard input with `cellar run -l py -`";
    let look = Look::of_stdout();
    if !look.is_terminal || !Look::is_stdin_terminal() {
        return Err(CliError::usage("a prompt needs a terminal", hint));
    }
    if std::env::var_os("TERM").is_some_and(|name| name == "dumb") {
        return Err(CliError::usage(
            "a prompt needs a terminal that can move its cursor, which TERM=dumb cannot",
            hint,
        ));
    }
    let mut request = SessionRequest::from(&arguments.session);
    // Whoever types here can answer, and interrupt.
    (request.overrides.input, request.overrides.untimed) = (true, true);
    let own = setup::open_session(folders, request).await?;
    own.make_ready(&[Language::Python, Language::JavaScript]).await?;
    let session = own.session().clone();
    let output = OutputArguments { plain: arguments.plain, ..OutputArguments::default() };
    let options = Options { has_frames: false, output_lines: None, ..Options::of_stdout(output, arguments.images) };
    let has_colors = look.has_colors && !arguments.plain;
    let (mut editor, background_shown) = Editor::new(&session, has_colors);
    let language = arguments.language.into();
    let mut prompt = Prompt { own, session, language, options, has_colors, background_shown };
    print_progress(&format!("Cellar {}, {}. :help says more.", env!("CARGO_PKG_VERSION"), prompt.language.title()));
    loop {
        let language = prompt.language;
        let cell = prompt.session.next_cell().0;
        let (returned, signal) = editor.read(language, cell).await.map_err(CliError::Start)?;
        editor = returned;
        match signal {
            Signal::Success(line) => {
                if !prompt.take(line.trim()).await? {
                    break;
                }
            }
            Signal::CtrlC => {}
            _ => break,
        }
    }
    prompt.session.end_recording()?;
    if arguments.session.name.is_some() {
        prompt.session.save().await?;
    }
    Ok(EXIT_COMPLETE)
}

/// Prompt of a session: the language of its lines, and its options.
struct Prompt {
    own: OwnSession,
    session: Session,
    language: Language,
    options: Options,
    has_colors: bool,
    /// Bytes written between cells that were already shown above the line.
    background_shown: Arc<AtomicU64>,
}

impl Prompt {
    /// Carries out a line. Returns false if it ends the prompt.
    async fn take(&mut self, line: &str) -> Result<bool, CliError> {
        match line {
            "" => {}
            ":py" => self.language = Language::Python,
            ":js" => self.language = Language::JavaScript,
            ":help" | ":h" | "?" => print(HELP)?,
            // What other prompts are left with.
            ":quit" | ":q" | "exit" | "quit" | "exit()" | "quit()" | ".exit" => return Ok(false),
            ":reset" => {
                self.session.reset(self.language);
                print_progress(&format!("{} starts anew", self.language.title()));
            }
            ":vars" => self.variables().await?,
            _ if line.starts_with(':') => print_progress(&format!("there is no `{line}`; :help lists what there is")),
            _ => match line.strip_suffix('?').filter(|name| is_path(name)) {
                Some(name) => self.inspect(name).await?,
                None => self.run(line).await?,
            },
        }
        Ok(true)
    }

    /// Runs a cell. An interrupt stops it.
    async fn run(&mut self, code: &str) -> Result<(), CliError> {
        let run = self.own.start(vec![Cell::new(self.language, code)], false, RunOptions::default())?;
        let mut reader = run.own(0);
        let mut transcript = Transcript::new(Transcribed, self.options.clone());
        let mut interrupts = Interrupts::listen().map_err(CliError::Start)?;
        loop {
            let event = tokio::select! {
                event = next_event(&run, &mut reader) => event,
                _ = interrupts.next() => {
                    run.cancel();
                    continue;
                }
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => {
                    print_error(&error);
                    return Ok(());
                }
            };
            let is_told = match &event.kind {
                // What a cancelled run did not come to is not worth a line here.
                EventKind::RunFinished { .. } => false,
                EventKind::Background { text, left_out, .. } => {
                    !self.was_shown(left_out.saturating_add(text.len() as u64))
                }
                _ => true,
            };
            if is_told {
                transcript.event(&event)?;
            }
            if let EventKind::InputRequest { request_id, .. } = &event.kind {
                match editor::ask(self.has_colors).await.map_err(CliError::Start)? {
                    Signal::Success(line) => self.answer(self.session.submit_input(request_id, line)),
                    Signal::CtrlC => run.cancel(),
                    _ => self.answer(self.session.end_input(request_id)),
                }
            }
        }
    }

    /// Returns true if so many further bytes that were written between cells were shown when they came. Takes them off
    /// the count of shown bytes.
    fn was_shown(&self, bytes: u64) -> bool {
        let left = |shown: u64| Some(shown.saturating_sub(bytes));
        let shown = self.background_shown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        shown.is_ok_and(|shown| shown >= bytes)
    }

    /// Says that an answer came too late.
    fn answer(&self, given: Result<(), Error>) {
        if given.is_err() {
            print_progress("the cell does not wait for that any more");
        }
    }

    async fn variables(&self) -> Result<(), CliError> {
        let variables = match self.session.variables(self.language).await {
            Ok(variables) => variables,
            Err(error) => {
                print_error(&error.into());
                return Ok(());
            }
        };
        let names = variables.iter().map(|variable| width(&variable.name)).max().unwrap_or(0);
        let columns = self.options.width;
        for variable in variables {
            let size = variable.size.map(|size| format!("[{size}]")).unwrap_or_default();
            let name = padded(&variable.name, names);
            let line = format!("{name}  {}{size}  {}", variable.type_name, variable.preview);
            print(&format!("{}\n", cut(&escaped(&line), columns).trim_end()))?;
        }
        Ok(())
    }

    async fn inspect(&self, name: &str) -> Result<(), CliError> {
        let cursor = u32::try_from(name.chars().count()).unwrap_or(u32::MAX);
        match self.session.inspect(self.language, name, cursor).await {
            Ok(Some(help)) => Transcript::new(Transcribed, self.options.clone()).show_bundle(&help),
            Ok(None) => {
                print_progress(&format!("nothing is known of `{name}`"));
                Ok(())
            }
            Err(error) => {
                print_error(&error.into());
                Ok(())
            }
        }
    }
}

/// As much of a line as so many columns have room for.
fn cut(line: &str, columns: usize) -> &str {
    let mut used = 0_usize;
    let end = line.char_indices().find(|(_, character)| {
        used = used.saturating_add(char_width(*character));
        used > columns
    });
    end.map_or(line, |(end, _)| &line[..end])
}

/// A name, or names behind dots.
fn is_path(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'))
}
