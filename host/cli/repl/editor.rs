//! The line editor: history, several lines, completion, colours.

use std::{
    borrow::Cow,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anstyle::Style;
use cellar_engine::{Language, Session};
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, Emacs, FileBackedHistory, Highlighter, KeyCode,
    KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu,
    Signal, Span, StyledText, Suggestion, ValidationResult, Validator, default_emacs_keybindings,
};
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use super::syntax;
use crate::render::highlight;

/// Lines of history that are kept.
const HISTORY_LINES: usize = 10_000;
/// How long completion may keep a person waiting.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer cells are not coloured while they are typed.
const COLORED_BYTES_MAX: usize = 16 << 10;

const MENU: &str = "completions";

/// The language that is typed, shared with what the editor calls.
type Typed = Arc<Mutex<Language>>;

/// The editor. It is away while it reads.
pub(super) struct Editor {
    line: Reedline,
    typed: Typed,
}

impl Editor {
    pub(super) fn new(session: &Session, has_colors: bool) -> Editor {
        let typed: Typed = Arc::new(Mutex::new(Language::Python));
        let mut keys = default_emacs_keybindings();
        let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
        let completer = Names { session: session.clone(), typed: Arc::clone(&typed), runtime: Handle::current() };
        let menu = ColumnarMenu::default().with_name(MENU);
        let mut line = Reedline::create()
            .with_completer(Box::new(completer))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_validator(Box::new(Lines(Arc::clone(&typed))))
            .with_highlighter(Box::new(Colors { typed: Arc::clone(&typed), has_colors }))
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_ansi_colors(has_colors)
            .use_bracketed_paste(true);
        if has_colors {
            line = line.with_hinter(Box::new(DefaultHinter::default()));
        }
        // A history that cannot be kept is no reason to refuse the prompt.
        if let Some(folder) = dirs::state_dir()
            && let Ok(history) = FileBackedHistory::with_file(HISTORY_LINES, folder.join("cellar").join("history"))
        {
            line = line.with_history(Box::new(history));
        }
        Editor { line, typed }
    }

    /// Reads the next cell, and gives the editor back with it.
    ///
    /// # Errors
    /// The terminal cannot be read.
    ///
    /// # Cancel safety
    /// Not cancel safe: the thread goes on reading.
    pub(super) async fn read(mut self, language: Language) -> io::Result<(Editor, Signal)> {
        *lock(&self.typed) = language;
        let read = spawn_blocking(move || {
            let signal = self.line.read_line(&Sign(language.code()));
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
        Reedline::create().with_ansi_colors(has_colors).use_bracketed_paste(true).read_line(&Sign("input"))
    });
    read.await?.map_err(io::Error::other)
}

fn lock(typed: &Typed) -> std::sync::MutexGuard<'_, Language> {
    typed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What stands before the line.
struct Sign(&'static str);

impl Prompt for Sign {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
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

/// Completes with what the session knows.
struct Names {
    session: Session,
    typed: Typed,
    runtime: Handle,
}

impl Completer for Names {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let language = *lock(&self.typed);
        let before = line.get(..position).unwrap_or(line);
        let cursor = u32::try_from(before.chars().count()).unwrap_or(u32::MAX);
        let ask = timeout(COMPLETION_TIMEOUT, self.session.complete(language, line, cursor));
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
        CompletionResult::fresh(found.items.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

/// Says whether a cell goes on.
struct Lines(Typed);

impl Validator for Lines {
    fn validate(&self, line: &str) -> ValidationResult {
        let is_command = line.starts_with(':') || line.trim_end().ends_with('?');
        match !is_command && syntax::goes_on(line, *lock(&self.0)) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Complete,
        }
    }
}

/// Colours what is typed.
struct Colors {
    typed: Typed,
    has_colors: bool,
}

impl Highlighter for Colors {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut styled = StyledText::new();
        let is_wanted = self.has_colors && line.len() <= COLORED_BYTES_MAX;
        let Some(mut highlighter) = is_wanted.then(|| highlight::Highlighter::new(*lock(&self.typed))).flatten() else {
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
