//! Rate of a tenant's requests, and requests that it may repeat.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::sync::lock;
use http::StatusCode;

use super::Tenant;
use crate::problem::Problem;

/// Requests that may be repeated with their keys.
const REPEATS_MAX: usize = 10_000;
/// Time for which they may be.
const REPEATS_KEPT: Duration = Duration::from_secs(24 * 3_600);

impl Tenant {
    /// Looks up a request by its Idempotency-Key: returns that it is the first one, or what the first one made. `what`
    /// is the fingerprint that tells requests with the same key apart.
    pub(crate) fn repeat(self: &Arc<Tenant>, key: Option<&str>, what: u64) -> Result<Repeat, Problem> {
        let Some(key) = key else { return Ok(Repeat::First(None)) };
        let mut repeats = lock(&self.admission.repeats);
        repeats.forget_old();
        match repeats.by_key.get(key) {
            Some(kept) if kept.what != what => Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-mismatch",
                "another request was made with this Idempotency-Key",
            )),
            Some(Kept { made: None, .. }) => Err(Problem::new(
                StatusCode::CONFLICT,
                "idempotency-under-way",
                "the request with this Idempotency-Key is still being carried out",
            )),
            Some(Kept { made: Some(made), .. }) => Ok(Repeat::Again(made.clone())),
            None => {
                repeats.by_key.insert(key.to_owned(), Kept { what, made: None });
                repeats.order.push_back((Instant::now(), key.to_owned()));
                Ok(Repeat::First(Some(Ticket { tenant: self.clone(), key: key.to_owned(), is_made: false })))
            }
        }
    }
}

/// Token bucket of requests: `most` a second, with a capacity of one second's requests, at least 1.
#[derive(Debug)]
pub(crate) struct Rate {
    most: f64,
    left: f64,
    since: Instant,
}

impl Rate {
    pub(crate) fn new(most: f64) -> Rate {
        Rate { most, left: most, since: Instant::now() }
    }

    /// Takes one request from the bucket, or returns the time until there is one.
    pub(crate) fn take(&mut self) -> Result<(), Duration> {
        let now = Instant::now();
        self.left = (self.left + now.duration_since(self.since).as_secs_f64() * self.most).min(self.most.max(1.0));
        self.since = now;
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / self.most));
        }
        self.left -= 1.0;
        Ok(())
    }

    /// Returns the requests that may be made in a second, those that are left, and the seconds until the bucket is
    /// full.
    pub(crate) fn state(&self) -> (u64, u64, u64) {
        let whole = |number: f64| number.max(0.0) as u64;
        (whole(self.most), whole(self.left), whole(((self.most - self.left) / self.most).ceil()).max(1))
    }
}

/// Requests that may be repeated.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    by_key: HashMap<String, Kept>,
    /// The oldest first.
    order: VecDeque<(Instant, String)>,
}

#[derive(Debug)]
struct Kept {
    what: u64,
    /// Name of what the request made, once it has.
    made: Option<String>,
}

impl Repeats {
    fn forget_old(&mut self) {
        while let Some((since, _)) = self.order.front() {
            if self.order.len() < REPEATS_MAX && since.elapsed() < REPEATS_KEPT {
                return;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// Fingerprint that tells requests apart that carry the same key.
pub(crate) fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// A request that carries a key.
#[derive(Debug)]
pub(crate) enum Repeat {
    /// It is carried out; the ticket notes what it makes.
    First(Option<Ticket>),
    /// It was carried out, and made this.
    Again(String),
}

/// The right to carry out a request. Dropped before anything is made, it leaves the key free.
#[derive(Debug)]
pub(crate) struct Ticket {
    tenant: Arc<Tenant>,
    key: String,
    is_made: bool,
}

impl Ticket {
    pub(crate) fn made(mut self, what: &str) {
        self.is_made = true;
        if let Some(kept) = lock(&self.tenant.admission.repeats).by_key.get_mut(&self.key) {
            kept.made = Some(what.to_owned());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_made {
            let mut repeats = lock(&self.tenant.admission.repeats);
            repeats.by_key.remove(&self.key);
            repeats.order.retain(|(_, key)| *key != self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_says_when_to_come_again() {
        let mut rate = Rate::new(2.0);
        assert!(rate.take().is_ok() && rate.take().is_ok());
        assert_eq!((rate.state().0, rate.state().1), (2, 0));
        let wait = rate.take().expect_err("there is none left");
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
        rate.since -= Duration::from_secs(10);
        assert!(rate.take().is_ok() && rate.take().is_ok() && rate.take().is_err(), "no more than those of a second");
    }
}
