//! Signals that ask a command to stop, and its death by them: a shell that sees it stops its own loop as well.

use std::{
    io,
    sync::atomic::{AtomicU8, Ordering},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit codes that shells report of commands that SIGINT and SIGTERM have ended.
const EXIT_INTERRUPTED: u8 = 130;
const EXIT_TERMINATED: u8 = 143;
/// Difference between the exit code that shells report and the signal.
const EXIT_SIGNALED: u8 = 128;

/// Exit code of the last signal that came; 0 if none has.
static RECEIVED: AtomicU8 = AtomicU8::new(0);

/// Signals that ask the process to stop: Ctrl-C (SIGINT), and SIGTERM.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Takes both signals from now on, for the whole process.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(crate) fn listen() -> io::Result<Interrupts> {
        Ok(Interrupts { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for a signal, and returns the exit code that shells report of it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> u8 {
        let code = tokio::select! {
            _ = self.interrupt.recv() => EXIT_INTERRUPTED,
            _ = self.terminate.recv() => EXIT_TERMINATED,
        };
        RECEIVED.store(code, Ordering::Relaxed);
        code
    }
}

/// Ends the process by the signal that the exit code stands for, if that signal is why it ends. Returns otherwise.
pub(crate) fn die(code: u8) {
    if code == 0 || RECEIVED.load(Ordering::Relaxed) != code {
        return;
    }
    // It returns if the signal cannot be raised: the exit code says the same then.
    let _ = signal_hook::low_level::emulate_default_handler(i32::from(code.saturating_sub(EXIT_SIGNALED)));
}
