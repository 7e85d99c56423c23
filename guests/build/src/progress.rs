//! Output of the builder on standard error: a line at the end of each step, and on a terminal a live line more, with
//! what runs now and what is left.
//!
//! Steps run side by side, so a line is written whole. Each that took a second is written down too: see [`crate::times`].

use std::io::Write;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::times::{self, Step};

/// Speaks for one product.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    name: String,
}

/// Steps that run now, and the line that shows them.
struct Board {
    bar: ProgressBar,
    running: Vec<Running>,
    /// Identifies the next step.
    next: u64,
    /// Steps of earlier builds that this one has yet to do.
    left: Vec<Step>,
}

struct Running {
    id: u64,
    name: String,
    title: String,
    /// Text shown besides.
    detail: String,
    began: Instant,
}

static BOARD: LazyLock<Mutex<Board>> = LazyLock::new(|| {
    let style =
        ProgressStyle::with_template("{elapsed_precise} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    // Hidden where standard error is no terminal.
    let bar = ProgressBar::new_spinner().with_style(style);
    Mutex::new(Board { bar, running: Vec::new(), next: 0, left: Vec::new() })
});

fn board() -> MutexGuard<'static, Board> {
    BOARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the steps that are expected: what is left of them, and for how long, is said while others run.
pub(crate) fn expect(steps: Vec<Step>) {
    let mut board = board();
    board.left = steps;
    board.show();
}

/// Takes the steps of a product that is there already off those that are left.
pub(crate) fn is_there(name: &str) {
    let mut board = board();
    board.left.retain(|step| step.name != name);
    board.show();
}

/// Ends the line that lives. Whatever else writes to the terminal comes after it.
pub(crate) fn finish() {
    board().bar.finish_and_clear();
}

impl Progress {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Says something that takes no time.
    pub(crate) fn note(&self, text: &str) {
        board().line(&format!("[{}] {text}", self.name));
    }

    /// Does `action`, shows `title` meanwhile, and says how long it took.
    pub(crate) fn timed<T>(&self, title: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        self.timed_from(0.0, title, action)
    }

    /// The same, without a line for what took less than a second: there was nothing to do.
    pub(crate) fn timed_if_long<T>(&self, title: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        self.timed_from(1.0, title, action)
    }

    fn timed_from<T>(&self, seconds_min: f64, title: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        let id = self.begin(title);
        let result = action();
        self.end(id, seconds_min, result.is_ok());
        result
    }

    /// Shows how far a step is that runs.
    pub(crate) fn show(&self, title: &str, detail: &str) {
        let mut board = board();
        let step = board.running.iter_mut().find(|step| step.name == self.name && step.title == title);
        if let Some(step) = step
            && step.detail != detail
        {
            step.detail = detail.to_owned();
            board.show();
        }
    }

    fn begin(&self, title: &str) -> u64 {
        let mut board = board();
        let id = board.next;
        board.next += 1;
        let (name, title) = (self.name.clone(), title.to_owned());
        board.running.push(Running { id, name, title, detail: String::new(), began: Instant::now() });
        board.bar.enable_steady_tick(Duration::from_secs(1));
        board.show();
        id
    }

    fn end(&self, id: u64, seconds_min: f64, is_done: bool) {
        let mut board = board();
        let Some(at) = board.running.iter().position(|step| step.id == id) else { return };
        let Running { name, title, began, .. } = board.running.remove(at);
        let seconds = began.elapsed().as_secs_f64();
        let outcome = match is_done {
            true if seconds < 10.0 => format!("{seconds:.1} s"),
            true => format!("{seconds:.0} s"),
            false => "failed".to_owned(),
        };
        if !is_done || seconds >= seconds_min {
            board.line(&format!("[{name}] {title}: {outcome}"));
        }
        if is_done {
            board.left.retain(|step| !(step.name == name && step.title == title));
            times::append(&Step { name, title, seconds });
        }
        board.show();
    }
}

impl Board {
    /// Writes a whole line above the one that lives. A closed standard error is no reason to stop a build.
    fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            let mut stderr = std::io::stderr().lock();
            let _ = stderr.write_all(format!("{text}\n").as_bytes()).and_then(|()| stderr.flush());
        } else {
            self.bar.println(text);
        }
    }

    fn show(&self) {
        self.bar.set_message(self.live());
    }

    /// The line that lives.
    fn live(&self) -> String {
        let running = self.running.iter().map(|step| format!("{}: {}{}", step.name, step.title, step.detail));
        let running = running.collect::<Vec<_>>().join(" · ");
        // Of what runs, what has passed is not left.
        let of = |step: &Step| {
            let now = self.running.iter().find(|now| now.name == step.name && now.title == step.title);
            (step.seconds - now.map_or(0.0, |now| now.began.elapsed().as_secs_f64())).max(0.0)
        };
        let seconds: f64 = self.left.iter().map(of).sum();
        match self.left.len() {
            0 => running,
            steps => format!("{running} | {steps} steps left, {}", minutes(seconds / times::AT_ONCE)),
        }
    }
}

/// A time that is an estimate.
fn minutes(seconds: f64) -> String {
    if seconds < 60.0 {
        "less than a minute".to_owned()
    } else {
        format!("about {:.0} minutes", (seconds / 60.0).ceil())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, title: &str, seconds: f64) -> Step {
        Step { name: name.to_owned(), title: title.to_owned(), seconds }
    }

    #[test]
    fn the_living_line_says_what_runs_and_what_is_left() {
        let board = Board {
            bar: ProgressBar::hidden(),
            running: vec![Running {
                id: 0,
                name: "numpy".into(),
                title: "compile".into(),
                detail: " 3/9".into(),
                began: Instant::now(),
            }],
            next: 1,
            left: vec![step("numpy", "compile", 100.0), step("pandas", "compile", 500.0)],
        };
        assert_eq!(board.live(), "numpy: compile 3/9 | 2 steps left, about 5 minutes");
    }
}
