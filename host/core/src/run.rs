//! Options of runs.

/// Options of a run: its producer, and the datasets that it may load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Who makes it: the path of a notebook, the name of an agent; at most
    /// [`PRODUCER_BYTES_MAX`](crate::origin::PRODUCER_BYTES_MAX). Every name that its cells bind at the top level gets an
    /// [`Origin`](crate::origin::Origin). Without it no name gets one, and names keep those that they have.
    pub producer: Option<String>,
    /// Nothing is stamped although there is a producer.
    pub dry_run: bool,
    /// What its caller has seen, as kinds and names: `dataset` and the live name of one. A cell cannot load any other dataset.
    /// Absent, it can load all.
    pub seen: Option<Vec<(String, String)>>,
}
