//! Account of the cell that a call is answered for: work that a bridge does outside of the kernel's turn is charged to it.

use std::{future::Future, sync::Arc, time::Duration};

use crate::kernel::scheduling::{CpuShare, Spent};

tokio::task_local! {
    static CURRENT: Account;
}

/// Account of a cell, which outlives the call. A cheap handle.
#[derive(Clone, Debug)]
pub struct Account {
    spent: Option<Arc<Spent>>,
    share: Option<CpuShare>,
}

impl Account {
    pub(crate) fn new(spent: Option<Arc<Spent>>, share: Option<CpuShare>) -> Account {
        Account { spent, share }
    }

    /// Returns the account of the call that is being answered; none where a call is answered for another process.
    pub fn current() -> Option<Account> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Charges processor time that was used for the call.
    pub fn charge(&self, time: Duration) {
        if let Some(spent) = &self.spent {
            spent.add(0, time);
        }
        if let Some(share) = &self.share {
            share.charge(time);
        }
    }

    /// Answers a call on this account.
    ///
    /// # Cancel safety
    /// As `work`.
    pub(crate) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }
}
