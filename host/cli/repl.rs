//! `cellar repl`: a prompt for cells of both languages, in one session.
//!
//! The editor blocks, so it has a thread of its own; cells run on the runtime. An interrupt while a cell runs stops that
//! cell and keeps the session.

mod editor;
mod syntax;

use std::io;

use cellar_engine::{Cell, EventKind, Language, Session};
use futures::StreamExt;
use reedline::Signal;

use crate::{
    args::{Folders, OutputArguments, ReplArguments},
    output::print,
    render::{Options, Transcript},
    report::{CliError, EXIT_COMPLETE, print_error, print_progress},
    run::Interrupts,
    setup,
    terminal::Look,
};
use editor::Editor;

const HELP: &str = "\
  :py  :js       write cells in Python or JavaScript
  :vars          list the names that cells have bound
  :reset         give the language a fresh kernel
  :help          this
  :quit          leave; so does Ctrl-D

  NAME?          help on a name
  Tab            complete; Ctrl-R searches the history
  Ctrl-C         stop the cell that runs, or drop what is being typed
";

/// Reads cells and runs them until there are no more.
///
/// # Errors
/// There is no terminal, the session cannot be opened, or the output cannot be written.
pub(crate) async fn repl(folders: &Folders, arguments: ReplArguments) -> Result<u8, CliError> {
    if !Look::of_stdout().is_terminal || !Look::is_stdin_terminal() {
        let hint = "run cells from standard input with `cellar run -l py -`";
        return Err(CliError::usage("a prompt needs a terminal", hint));
    }
    let languages = vec![Language::Python, Language::JavaScript];
    let session = setup::open_session(folders, &arguments.session, languages).await?;
    let output = OutputArguments { plain: arguments.plain, ..OutputArguments::default() };
    let options = Options { has_frames: false, output_lines: None, ..Options::of_stdout(output, arguments.images) };
    let mut prompt = Prompt { session, language: arguments.language.into(), options };
    print_progress(&format!("Cellar {}, {}. :help says more.", env!("CARGO_PKG_VERSION"), prompt.language.title()));
    let mut editor = Editor::new(&prompt.session, !arguments.plain);
    loop {
        let language = prompt.language;
        let (returned, signal) = editor.read(language).await.map_err(CliError::Start)?;
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
    if arguments.session.name.is_some() {
        prompt.session.save().await?;
    }
    Ok(EXIT_COMPLETE)
}

/// A session, and what lines are taken for.
struct Prompt {
    session: Session,
    language: Language,
    options: Options,
}

impl Prompt {
    /// Does what a line asks for. Says whether there may be another.
    async fn take(&mut self, line: &str) -> Result<bool, CliError> {
        match line {
            "" => {}
            ":py" => self.language = Language::Python,
            ":js" => self.language = Language::JavaScript,
            ":help" | ":h" | "?" => print(HELP.as_bytes())?,
            ":quit" | ":q" => return Ok(false),
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
        let mut run = match self.session.run(vec![Cell::new(self.language, code)]) {
            Ok(run) => run,
            Err(error) => {
                print_error(&error.into());
                return Ok(());
            }
        };
        let mut transcript = Transcript::new(io::stdout(), self.options.clone());
        let mut interrupts = Interrupts::listen().map_err(CliError::Start)?;
        loop {
            let event = tokio::select! {
                event = run.next() => event,
                () = interrupts.next() => {
                    run.cancel();
                    continue;
                }
            };
            let Some(event) = event else { return Ok(()) };
            // What a cancelled run did not come to is not worth a line here.
            if !matches!(event.kind, EventKind::RunFinished { .. }) {
                transcript.event(&event)?;
            }
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
        let width = variables.iter().map(|variable| variable.name.chars().count()).max().unwrap_or(0);
        let columns = self.options.width;
        for variable in variables {
            let size = variable.size.map(|size| format!("[{size}]")).unwrap_or_default();
            let line = format!("{:width$}  {}{size}  {}", variable.name, variable.type_name, variable.preview);
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(columns).collect();
            print(format!("{}\n", line.trim_end()).as_bytes())?;
        }
        Ok(())
    }

    async fn inspect(&self, name: &str) -> Result<(), CliError> {
        let cursor = u32::try_from(name.chars().count()).unwrap_or(u32::MAX);
        match self.session.inspect(self.language, name, cursor).await {
            Ok(Some(help)) => Transcript::new(io::stdout(), self.options.clone()).show_bundle(&help),
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

/// A name, or names behind dots.
fn is_path(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'))
}
