//! Size of the guests' images, and the time to prepare them on this machine.

use cellar_engine::{
    GuestName, HostConfig,
    guests::{BakeOptions, bake},
};

use crate::{
    Offer,
    lab::Plan,
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("images of guests", images)];

fn images(plan: &Plan) -> Vec<Line> {
    let guests =
        [("Python", GuestName::Python), ("Data", GuestName::PythonData), ("JavaScript", GuestName::JavaScript)];
    guests.into_iter().flat_map(|(title, guest)| image(plan, title, guest)).collect()
}

/// Bytes of an image and of its code; unless all shall be quick, also the time that both take to be made from a built guest.
fn image(plan: &Plan, title: &str, guest: GuestName) -> Vec<Line> {
    let config = plan.host_config();
    let report = bake(&config, guest, BakeOptions::default()).unwrap();
    let megabytes = |what: String, bytes: u64| {
        let size = bytes as f64 / 1e6;
        Line::new(what, Unit::Megabytes, size, size, None)
    };
    let mut lines = vec![
        megabytes(format!("{title}: baked image"), report.baked_bytes),
        megabytes(format!("{title}: compiled code, of all kinds"), report.compiled_bytes),
    ];
    if !plan.is_quick {
        let cache = tempfile::tempdir().unwrap();
        let config = HostConfig { cache: cache.path().to_owned(), ..config };
        let made = bake(&config, guest, BakeOptions::default()).unwrap();
        let mut samples = Samples::default();
        samples.push(made.duration);
        lines.push(Line::time(format!("{title}: baking and compiling"), &samples, None));
    }
    lines
}
