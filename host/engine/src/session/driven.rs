//! Tasks of kernels, which a thread that waits for a run may poll itself: then no thread has to wake another on the way from a cell to
//! its result.
//!
//! A kernel's future is a task of the runtime as any other, but its waker is one of ours. While a [`Driver`] has the kernel, wake-ups go
//! to the thread of the driver, and to the task at all other times.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use cellar_core::sync::lock;

use super::Session;

/// Duration for which a driver polls before it returns: its thread may have something else to see to.
const DRIVES_MAX: Duration = Duration::from_millis(2);

/// The thread that drives the kernels of a session, if one does.
#[derive(Debug, Default)]
pub(super) struct Seat(Mutex<Option<Waker>>);

/// Task of a kernel. A cheap handle.
#[derive(Clone)]
pub(super) struct Driven(Arc<Task>);

struct Task {
    /// `None` once it has ended.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    wakeups: Arc<Wakeups>,
}

/// Waker of a kernel's future.
struct Wakeups {
    seat: Arc<Seat>,
    is_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.pass_on();
    }
}

impl Wakeups {
    /// Wakes whoever polls the kernel now.
    fn pass_on(&self) {
        let here = lock(&self.seat.0).clone();
        if let Some(waker) = here.or_else(|| lock(&self.task).clone()) {
            waker.wake();
        }
    }
}

impl Driven {
    /// Makes a task of the runtime of a kernel's future.
    pub(super) fn spawn(seat: Arc<Seat>, future: impl Future<Output = ()> + Send + 'static) -> Driven {
        let wakeups = Wakeups { seat, is_woken: AtomicBool::new(true), task: Mutex::default() };
        let driven = Driven(Arc::new(Task { future: Mutex::new(Some(Box::pin(future))), wakeups: Arc::new(wakeups) }));
        tokio::spawn(Carrier(driven.0.clone()));
        driven
    }

    fn is_woken(&self) -> bool {
        self.0.wakeups.is_woken.load(Ordering::SeqCst)
    }
}

impl Task {
    /// Polls the kernel if it was woken and no other thread polls it. Returns true if it was polled.
    fn turn(&self) -> bool {
        let mut was_polled = false;
        {
            let mut future = match self.future.try_lock() {
                Ok(future) => future,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever polls it looks afterwards whether it was woken.
                Err(TryLockError::WouldBlock) => return false,
            };
            let was_woken = self.wakeups.is_woken.swap(false, Ordering::SeqCst);
            if let Some(kernel) = future.as_mut().filter(|_| was_woken) {
                was_polled = true;
                let waker = Waker::from(self.wakeups.clone());
                let poll = || kernel.as_mut().poll(&mut Context::from_waker(&waker));
                let polled = catch_unwind(AssertUnwindSafe(poll));
                if polled.is_err() {
                    tracing::error!("the task of a kernel panicked");
                }
                if !matches!(polled, Ok(Poll::Pending)) {
                    *future = None;
                    if let Some(task) = lock(&self.wakeups.task).clone() {
                        task.wake();
                    }
                }
            }
        }
        // Whoever was woken meanwhile found it locked.
        if self.wakeups.is_woken.load(Ordering::SeqCst) {
            self.wakeups.pass_on();
        }
        was_polled
    }
}

/// A kernel's task, as the runtime has it.
struct Carrier(Arc<Task>);

impl Future for Carrier {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Task { future, wakeups } = &*self.0;
        lock(&wakeups.task).get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        let is_driven = lock(&wakeups.seat.0).is_some();
        if !is_driven {
            self.0.turn();
        } else if wakeups.is_woken.load(Ordering::SeqCst) {
            wakeups.pass_on();
        }
        // Whoever polls it now wakes this task when it has ended.
        let has_ended = future.try_lock().is_ok_and(|future| future.is_none());
        if has_ended { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Carrier {
    /// Ends the kernel with its runtime.
    fn drop(&mut self) {
        let kernel = lock(&self.0.future).take();
        drop(kernel);
    }
}

/// Waits for something of a session on the thread that polls this, and polls the session's kernels there meanwhile: for threads that wait
/// for a run and have nothing else to do. Of several drivers of a session one drives, and the others only wait.
#[derive(Debug)]
pub struct Driver {
    session: Session,
    /// True while it has the kernels, and the runtime has not.
    drives: bool,
}

impl Session {
    /// A driver of the kernels of this session.
    pub fn driver(&self) -> Driver {
        Driver { session: self.clone(), drives: false }
    }
}

impl Driver {
    /// Polls `future`, and the kernels as long as that leads on. It has to be polled within the runtime of the session.
    pub fn poll<F: Future>(&mut self, cx: &mut Context<'_>, mut future: Pin<&mut F>) -> Poll<F::Output> {
        self.begin(cx.waker());
        let began = Instant::now();
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                self.pause();
                return Poll::Ready(output);
            }
            if !self.drives || !self.turn() {
                return Poll::Pending;
            }
            if began.elapsed() > DRIVES_MAX {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Leaves the kernels to the runtime until this is polled again.
    pub fn pause(&mut self) {
        if !std::mem::take(&mut self.drives) {
            return;
        }
        *lock(&self.session.inner.seat.0) = None;
        // What was woken since it was polled last is the runtime's to poll.
        self.woken().iter().for_each(|kernel| kernel.0.wakeups.pass_on());
    }

    fn begin(&mut self, waker: &Waker) {
        let mut seat = lock(&self.session.inner.seat.0);
        match &mut *seat {
            Some(here) if self.drives => here.clone_from(waker),
            // Another thread drives.
            Some(_) => {}
            None => {
                *seat = Some(waker.clone());
                self.drives = true;
            }
        }
    }

    fn woken(&self) -> Vec<Driven> {
        let kernels = lock(&self.session.inner.kernels);
        kernels.live.values().map(|kernel| &kernel.driven).filter(|kernel| kernel.is_woken()).cloned().collect()
    }

    /// Polls the kernels that were woken. Returns true if there was one.
    fn turn(&self) -> bool {
        let mut any = false;
        for kernel in self.woken() {
            any |= kernel.0.turn();
        }
        any
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.pause();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    struct Here(AtomicBool);

    impl Wake for Here {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// A kernel that waits for a number of messages, each of which it passes on.
    fn echo(seat: &Arc<Seat>, rounds: usize) -> (Driven, tokio::sync::mpsc::Sender<usize>, oneshot::Receiver<usize>) {
        let (sender, mut messages) = tokio::sync::mpsc::channel(1);
        let (done, ended) = oneshot::channel();
        let kernel = async move {
            let mut sum = 0;
            for _ in 0..rounds {
                sum += messages.recv().await.unwrap_or_default();
            }
            let _ = done.send(sum);
        };
        (Driven::spawn(seat.clone(), kernel), sender, ended)
    }

    #[tokio::test]
    async fn a_kernel_that_nobody_drives_is_polled_by_the_runtime() {
        let (_driven, sender, ended) = echo(&Arc::default(), 3);
        for number in 1..=3 {
            sender.send(number).await.expect("it waits");
        }
        assert_eq!(ended.await, Ok(6));
    }

    #[tokio::test]
    async fn a_driver_is_woken_in_the_place_of_the_task_until_it_leaves() {
        let seat = Arc::new(Seat::default());
        let (driven, sender, mut ended) = echo(&seat, 2);
        tokio::task::yield_now().await;
        let here = Arc::new(Here(AtomicBool::new(false)));
        *lock(&seat.0) = Some(Waker::from(here.clone()));
        sender.send(1).await.expect("it waits");
        assert!(here.0.load(Ordering::SeqCst) && driven.is_woken(), "the driver is woken");
        assert!(driven.0.turn() && !driven.0.turn(), "it is polled once for a wake-up");
        sender.send(2).await.expect("it waits");
        tokio::task::yield_now().await;
        assert!(ended.try_recv().is_err(), "the task leaves it to the driver");
        *lock(&seat.0) = None;
        driven.0.wakeups.pass_on();
        assert_eq!(ended.await, Ok(3), "the task goes on where the driver has left");
    }

    #[tokio::test]
    async fn a_kernel_that_panics_ends_and_is_told_of() {
        let driven = Driven::spawn(Arc::default(), async { panic!("a fault of the kernel") });
        while lock(&driven.0.future).is_some() {
            tokio::task::yield_now().await;
        }
    }
}
