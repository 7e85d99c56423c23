//! Options of runs.

/// Options of a run: its producer, and the datasets that it may load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Producer of the run: the path of a notebook, the name of an agent; at most
    /// [`PRODUCER_BYTES_MAX`](crate::origin::PRODUCER_BYTES_MAX) bytes. Every name that its cells bind at the top level gets
    /// an [`Origin`](crate::origin::Origin). Without a producer no name gets one, and names that are
    /// bound anew or deleted lose theirs.
    pub producer: Option<String>,
    /// True to record no origins although there is a producer, and to publish no datasets.
    pub dry_run: bool,
    /// Objects that the caller has seen, as kinds and names: `dataset` and the live name of one. A cell cannot load any other
    /// dataset. When absent, it can load all.
    pub seen: Option<Vec<(String, String)>>,
}
