//! The line editor: history, several lines, completion, colours.

use std::{
    borrow::Cow,
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::SyncSender,
    },
    time::Duration,
};

use anstyle::Style;
use cellar_engine::{Language, Session, background::Background, event::background_lines, looks::Completeness};
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, EditCommand, EditMode, Emacs, ExternalPrinter,
    FileBackedHistory, Highlighter, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch,
    Reedline, ReedlineEvent, ReedlineMenu, ReedlineRawEvent, Signal, Span, StyledText, Suggestion, ValidationResult,
    Validator, default_emacs_keybindings,
};
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use crate::{
    render::highlight,
    terminal::{escaped_lines, is_harmful},
};

/// Lines of history that are kept.
const HISTORY_LINES: usize = 10_000;
/// Timeout of a query to the session, for which a person waits.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer cells are not coloured while they are typed.
const COLORED_BYTES_MAX: usize = 16 << 10;

const MENU: &str = "completions";

/// Text that is being typed, shared with the editor's callbacks.
type Typed = Arc<Mutex<Text>>;

#[derive(Debug)]
struct Text {
    language: Language,
    /// The cell as it was drawn, if no key has come since.
    drawn: Option<String>,
}

/// Texts between cells that wait to be shown above the line.
const BACKGROUND_QUEUED_MAX: usize = 64;

/// The editor. It is away while it reads.
pub(super) struct Editor {
    line: Reedline,
    typed: Typed,
}

/// Shows output of a session's code between cells above the line that is being typed. Returns the count of the bytes
/// shown, which the next cell need not repeat.
fn show_background(session: &Session, shown: SyncSender<String>) -> Arc<AtomicU64> {
    let bytes = Arc::new(AtomicU64::new(0));
    let (mut background, counted) = (session.background(), bytes.clone());
    tokio::spawn(async move {
        while let Some(Background { cell, text, left_out, .. }) = background.next().await {
            let lines = background_lines(cell, &text, left_out);
            let lines: Vec<String> = escaped_lines(&lines).lines().map(|line| format!("  {line}")).collect();
            // What finds no room is told by the next cell.
            if shown.try_send(lines.join("\n")).is_ok() {
                counted.fetch_add(text.len() as u64, Ordering::Relaxed);
            }
        }
    });
    bytes
}

impl Editor {
    /// Creates the editor. Also returns the count of bytes that were written between cells and shown.
    pub(super) fn new(session: &Session, has_colors: bool) -> (Editor, Arc<AtomicU64>) {
        let printer = ExternalPrinter::new(BACKGROUND_QUEUED_MAX);
        let shown = show_background(session, printer.sender());
        let typed: Typed = Arc::new(Mutex::new(Text { language: Language::Python, drawn: None }));
        let mut keys = default_emacs_keybindings();
        let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
        let (session, runtime) = (session.clone(), Handle::current());
        let completer = Names { session: session.clone(), typed: Arc::clone(&typed), runtime: runtime.clone() };
        let whole = Whole { session, typed: Arc::clone(&typed), runtime };
        let keys = Keys { usual: Emacs::new(keys), whole: whole.clone() };
        let menu = ColumnarMenu::default().with_name(MENU);
        let mut line = Reedline::create()
            .with_completer(Box::new(completer))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_highlighter(Box::new(Colors { typed: Arc::clone(&typed), has_colors }))
            .with_validator(Box::new(whole))
            .with_edit_mode(Box::new(keys))
            .with_ansi_colors(has_colors)
            .with_external_printer(printer)
            .use_bracketed_paste(true);
        if has_colors {
            line = line.with_hinter(Box::new(DefaultHinter::default()));
        }
        // A history that cannot be kept is no reason to refuse the prompt.
        if let Some(folder) = dirs::state_dir()
            && let path = folder.join("cellar").join("history")
            && keep_private(&path).is_ok()
            && let Ok(history) = FileBackedHistory::with_file(HISTORY_LINES, path)
        {
            line = line.with_history(Box::new(history));
        }
        (Editor { line, typed }, shown)
    }

    /// Reads the next cell, and returns the editor with it.
    ///
    /// # Errors
    /// The terminal cannot be read.
    ///
    /// # Cancel safety
    /// Not cancel safe: the thread goes on reading.
    pub(super) async fn read(mut self, language: Language, cell: u32) -> io::Result<(Editor, Signal)> {
        *lock(&self.typed) = Text { language, drawn: None };
        let read = spawn_blocking(move || {
            let signal = self.line.read_line(&Sign(format!("{} {cell}", language.code())));
            (self, signal)
        });
        let (editor, signal) = read.await?;
        Ok((editor, signal.map_err(io::Error::other)?))
    }
}

/// Asks for a line that a cell waits for. It is no code: nothing is completed, coloured or kept.
///
/// # Errors
/// The terminal cannot be read.
///
/// # Cancel safety
/// Not cancel safe: the thread goes on reading.
pub(super) async fn ask(has_colors: bool) -> io::Result<Signal> {
    let read = spawn_blocking(move || {
        Reedline::create().with_ansi_colors(has_colors).use_bracketed_paste(true).read_line(&Sign("input".to_owned()))
    });
    read.await?.map_err(io::Error::other)
}

fn lock(typed: &Typed) -> MutexGuard<'_, Text> {
    typed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the file of the history, readable by its owner only: there may be passwords in typed text.
fn keep_private(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))
}

/// Prompt before the line.
struct Sign(String);

impl Prompt for Sign {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("… ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("history `{}`: ", search.term))
    }
}

/// Completer with the names of the session.
struct Names {
    session: Session,
    typed: Typed,
    runtime: Handle,
}

impl Completer for Names {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let language = lock(&self.typed).language;
        let before = line.get(..position).unwrap_or(line);
        let cursor = u32::try_from(before.chars().count()).unwrap_or(u32::MAX);
        let ask = timeout(LOOK_TIMEOUT, self.session.complete(language, line, cursor));
        // Nothing to offer is the answer to a failure as well: the cell will tell what is wrong.
        let Ok(Ok(found)) = self.runtime.block_on(ask) else { return CompletionResult::fresh(Vec::new()) };
        let place = |characters: u32| {
            let characters = usize::try_from(characters).unwrap_or(usize::MAX);
            line.char_indices().nth(characters).map_or(line.len(), |(place, _)| place)
        };
        let (start, end) = (place(found.start), place(found.end));
        let span = Span::new(start.min(end), end);
        let suggestion = |item: cellar_engine::looks::Completion| Suggestion {
            value: item.text,
            description: Some(item.kind),
            span,
            ..Suggestion::default()
        };
        // What is chosen is typed, so that nothing is offered that a terminal must not get.
        let is_offered = |item: &cellar_engine::looks::Completion| {
            !(item.text.contains(is_harmful) || item.kind.contains(is_harmful))
        };
        CompletionResult::fresh(found.items.into_iter().filter(is_offered).map(suggestion).collect::<Vec<_>>())
    }
}

/// Asks the guest whether a cell goes on.
#[derive(Clone)]
struct Whole {
    session: Session,
    typed: Typed,
    runtime: Handle,
}

impl Whole {
    /// The indentation of the next line, if the cell goes on. A guest that does not answer in time leaves it to the person.
    fn next_indent(&self, code: &str) -> Option<String> {
        if code.starts_with(':') || code.trim_end().ends_with('?') || code.trim().is_empty() {
            return None;
        }
        let language = lock(&self.typed).language;
        let ask = timeout(LOOK_TIMEOUT, self.session.is_complete(language, code));
        match self.runtime.block_on(ask) {
            Ok(Ok(Completeness::Incomplete(indent))) => Some(indent),
            _ => None,
        }
    }
}

impl Validator for Whole {
    fn validate(&self, code: &str) -> ValidationResult {
        match self.next_indent(code) {
            Some(_) => ValidationResult::Incomplete,
            None => ValidationResult::Complete,
        }
    }
}

/// The keys of the editor. Enter within a cell indents the next line.
struct Keys {
    usual: Emacs,
    whole: Whole,
}

impl EditMode for Keys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        let event = self.usual.parse_event(event);
        // Keys come faster than they are drawn when somebody pastes. What is typed then is indented already.
        let drawn = lock(&self.whole.typed).drawn.take();
        let indent = match (&event, drawn) {
            (ReedlineEvent::Enter, Some(code)) => self.whole.next_indent(&code),
            _ => None,
        };
        let Some(indent) = indent else { return event };
        let line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline, EditCommand::InsertString(indent)]);
        ReedlineEvent::UntilFound(vec![ReedlineEvent::MenuAccept, line])
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.usual.edit_mode()
    }
}

/// Colours what is typed.
struct Colors {
    typed: Typed,
    has_colors: bool,
}

impl Highlighter for Colors {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        // The editor shows what is typed to nobody else at each change.
        let language = {
            let mut typed = lock(&self.typed);
            typed.drawn = Some(line.to_owned());
            typed.language
        };
        let mut styled = StyledText::new();
        let is_wanted = self.has_colors && line.len() <= COLORED_BYTES_MAX;
        let Some(mut highlighter) = is_wanted.then(|| highlight::Highlighter::new(language)).flatten() else {
            styled.push((nu_ansi_term::Style::new(), line.to_owned()));
            return styled;
        };
        for (number, line) in line.split('\n').enumerate() {
            if number > 0 {
                styled.push((nu_ansi_term::Style::new(), "\n".to_owned()));
            }
            for (style, part) in highlighter.parts(line) {
                styled.push((editor_style(style), part.to_owned()));
            }
        }
        styled
    }
}

/// The editor's name for a style.
fn editor_style(style: Style) -> nu_ansi_term::Style {
    let color = style.get_fg_color().and_then(|color| match color {
        anstyle::Color::Ansi(color) => Some(nu_ansi_term::Color::Fixed(anstyle::Ansi256Color::from(color).0)),
        _ => None,
    });
    color.map_or_else(nu_ansi_term::Style::new, |color| color.normal())
}
