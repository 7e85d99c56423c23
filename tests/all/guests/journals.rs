//! Large displays in the journals of runs.

use std::sync::Arc;

use cellar_bridges::NoDoors;
use cellar_engine::{Cell, EventKind, Language, config::RunOptions};
use cellar_hub::{Delivery, Hub, HubConfig, OnDisconnect, OpenRequest, RunRequest};

use crate::sessions::{config, on_one_thread};

/// Bytes of each display, and how many of them are more than a journal keeps.
const DISPLAY_BYTES: usize = 1_000_000;
const DISPLAYS: usize = 40;

#[test]
fn later_readers_find_large_displays_as_artifacts() {
    on_one_thread(async {
        let hub = Hub::open(config(4), HubConfig::default(), Arc::new(NoDoors)).expect("a hub");
        let name = hub.open_session(OpenRequest::default(), None).await.expect("a session");
        let code = format!(
            "from IPython.display import HTML\nfor n in range({DISPLAYS}): display(HTML(chr(97 + n % 26) * {DISPLAY_BYTES}))"
        );
        let request = RunRequest {
            id: "r".to_owned(),
            cells: vec![Cell::new(Language::Python, code)],
            keep_going: false,
            options: RunOptions::default(),
            is_owned: true,
            on_disconnect: OnDisconnect::Continue,
        };
        let run = hub.start(&name, request).expect("a run");
        let html = |delivery: &Delivery| match delivery {
            Delivery::Event(event) => match &event.kind {
                EventKind::Display { data, .. } => Some((data.text("text/html").is_some(), data.clone())),
                _ => None,
            },
            other => panic!("an event is missing: {other:?}"),
        };
        let mut owner = run.own(0);
        let mut owned = 0;
        while let Some(delivery) = owner.next().await {
            owned += usize::from(html(&delivery).is_some_and(|(is_whole, _)| is_whole));
        }
        assert_eq!(owned, DISPLAYS, "who reads at once sees each as it was");

        let mut later = Vec::new();
        let mut watcher = run.watch(0);
        while let Some(delivery) = watcher.next().await {
            later.extend(html(&delivery));
        }
        assert_eq!(later.len(), DISPLAYS);
        let named = later.iter().filter(|(is_whole, _)| !is_whole).count();
        assert!(named > DISPLAYS / 2, "{named} displays are named");
        assert!(later.last().expect("displays").0, "the last is kept whole");
        let text = later[0].1.text("text/plain").expect("a text");
        let id = text.split("artifact://").nth(1).and_then(|rest| rest.split(')').next());
        let id = id.unwrap_or_else(|| panic!("{text}"));
        let artifacts = run.session().artifacts().expect("artifacts");
        let artifact = artifacts.get(&format!("artifact://{id}")).expect("it is kept");
        assert_eq!((artifact.mime_type.as_str(), artifact.size_bytes), ("text/html", DISPLAY_BYTES as u64));
    });
}
