//! Task that drives a run: the task that waits for it, or one of its own.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::FutureExt;
use tokio::runtime::Handle;

/// Drives a run to its end. Nothing of the run happens before this is polled, and the session's next run waits for it.
///
/// The task that waits for the run polls this first, so that no task need wake another. Dropped before the end, the run
/// goes on as a task of its own.
pub struct Driving(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Driving {
    pub(crate) fn new(driver: impl Future<Output = ()> + Send + 'static) -> Driving {
        let driver = AssertUnwindSafe(driver).catch_unwind().map(|driven| {
            if driven.is_err() {
                tracing::error!("what drives a run failed");
            }
        });
        Driving(Some(Box::pin(driver)))
    }
}

impl fmt::Debug for Driving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driving").field("is_over", &self.0.is_none()).finish()
    }
}

impl Future for Driving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(driver) = &mut self.0 {
            ready!(driver.as_mut().poll(cx));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        if let (Some(driver), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(driver);
        }
    }
}
