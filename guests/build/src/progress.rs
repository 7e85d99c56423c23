//! One line on standard error for each thing the builder does, with the time it took.

use std::io::Write;
use std::time::Instant;

use anyhow::Result;

/// Speaks for one product.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    name: String,
}

impl Progress {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Says something that takes no time.
    pub(crate) fn note(&self, text: &str) {
        self.say(&format!("[{}] {text}\n", self.name));
    }

    /// Says `title`, does `action`, and says how long it took.
    pub(crate) fn timed<T>(&self, title: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
        self.say(&format!("[{}] {title} …", self.name));
        let start = Instant::now();
        let result = action();
        let seconds = start.elapsed().as_secs_f64();
        self.say(&match &result {
            Ok(_) if seconds < 10.0 => format!(" {seconds:.1} s\n"),
            Ok(_) => format!(" {seconds:.0} s\n"),
            Err(_) => " failed\n".to_owned(),
        });
        result
    }

    /// A closed standard error is no reason to stop a build.
    fn say(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}
