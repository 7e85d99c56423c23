//! Further representations of what cells display, made by the host: a picture of a chart's specification, a file of a table.
//!
//! Guests display what they have. A [`Renderer`] adds to it on its way to the reader of the run, and to that of a replay.
//! What it adds is in no recording: it is made again.

use std::{pin::Pin, sync::Arc};

use cellar_core::{
    event::{EventKind, HostStatus, Scalar},
    mime::{MimeBundle, MimeData},
};
use futures::future::{Either, select};

use crate::tables::{self, Tables};

/// Adds representations to displayed values. A session has any number of them: `OutputOptions::renderers`.
pub trait Renderer: Send + Sync {
    /// Begins to render a value, if it is of a kind that this renderer knows. Called for every displayed value, in the
    /// run's own task: what takes long belongs into the future. The value is shown when that ends, and what the cell does
    /// later waits behind it, so the future must end by itself. It is dropped with its run.
    fn render(&self, data: &MimeBundle) -> Option<RenderFuture>;
}

/// What a renderer will have added.
pub type RenderFuture = Pin<Box<dyn Future<Output = Rendered> + Send>>;

/// What a renderer adds to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Representations. Of a type that the value has already, its own stays.
    pub data: MimeBundle,
    /// Why there are not more. Never the fault of the cell: it goes on.
    pub error: Option<RenderError>,
}

/// Why a value was not rendered. The run tells it on the cell's standard error, and its name by the status event
/// `render_failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderError {
    /// A name, as exceptions have: `ChartTimeout`.
    pub name: String,
    /// What was tried, what was found, what to do.
    pub message: String,
}

/// The events that are to be heard of in the place of one.
pub type Rendering = Pin<Box<dyn Future<Output = Vec<EventKind>> + Send>>;

/// What becomes of an event.
pub enum Begun {
    /// It waits for what is being added to it.
    Rendering(Rendering),
    /// Nobody has anything to add to it.
    AsItIs(EventKind),
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Begun::Rendering(_) => f.write_str("Rendering"),
            Begun::AsItIs(event) => f.debug_tuple("AsItIs").field(event).finish(),
        }
    }
}

/// What ends when nobody wants anything rendered any more.
pub type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins to render what an event displays. `tables` is where its table goes, if it has one. What is not rendered when
/// `stopped` ends is dropped, and the value shown without it.
pub fn begin(
    renderers: &[Arc<dyn Renderer>],
    tables: impl FnOnce() -> Tables,
    mut event: EventKind,
    stopped: impl FnOnce() -> Stopped,
) -> Begun {
    let (EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. }) = &mut event else {
        return Begun::AsItIs(event);
    };
    let table = tables::take(data).map(|table| (tables(), table));
    let begun: Vec<RenderFuture> = renderers.iter().filter_map(|renderer| renderer.render(data)).collect();
    match begun.is_empty() && table.is_none() {
        true => Begun::AsItIs(event),
        false => Begun::Rendering(Box::pin(rendered(event, table, begun, stopped()))),
    }
}

/// The event with all that was added to it, and behind it what went wrong.
async fn rendered(
    mut event: EventKind,
    table: Option<(Tables, MimeData)>,
    begun: Vec<RenderFuture>,
    mut stopped: Stopped,
) -> Vec<EventKind> {
    let mut failed = Vec::new();
    if let (EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. }, Some((tables, table))) =
        (&mut event, table)
    {
        tables.keep(table, data).await;
    }
    for render in begun {
        let Rendered { data: added, error } = match select(render, &mut stopped).await {
            Either::Left((rendered, _)) => rendered,
            Either::Right(_) => {
                let message = "the run was cancelled before the value was drawn".to_owned();
                failed.push(RenderError { name: "RenderCancelled".to_owned(), message });
                break;
            }
        };
        failed.extend(error);
        if let EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } = &mut event {
            for (mime_type, value) in added.0 {
                if data.get(&mime_type).is_none() {
                    data.0.push((mime_type, value));
                }
            }
        }
    }
    let (EventKind::Display { index, .. } | EventKind::UpdateDisplay { index, .. }) = event else { return vec![event] };
    let mut events = vec![event];
    for RenderError { name, message } in failed {
        events.push(EventKind::Stderr { index, text: format!("{name}: {message}\n") });
        let fields = vec![("error".to_owned(), Scalar::Text(name))];
        events.push(HostStatus::RenderFailed.event(index, fields));
    }
    events
}

#[cfg(test)]
mod tests {
    use cellar_core::mime::MimeData;

    use super::*;

    struct Shout;

    impl Renderer for Shout {
        fn render(&self, data: &MimeBundle) -> Option<RenderFuture> {
            let text = data.text("text/quiet")?.to_uppercase();
            let error =
                text.is_empty().then(|| RenderError { name: "Silence".to_owned(), message: "nothing".to_owned() });
            let data = if text.is_empty() { Vec::new() } else { vec![("text/loud".to_owned(), MimeData::Text(text))] };
            Some(Box::pin(async move { Rendered { data: MimeBundle(data), error } }))
        }
    }

    fn display(types: &[(&str, &str)]) -> EventKind {
        let types = types.iter().map(|(name, text)| ((*name).to_owned(), MimeData::Text((*text).to_owned())));
        EventKind::Display { index: 1, data: MimeBundle(types.collect()), display_id: None, is_value: false }
    }

    fn shouted(event: EventKind) -> Vec<EventKind> {
        let renderers: [Arc<dyn Renderer>; 1] = [Arc::new(Shout)];
        match begin(&renderers, || unreachable!("no table"), event, || Box::pin(std::future::pending())) {
            Begun::Rendering(rendering) => futures::executor::block_on(rendering),
            Begun::AsItIs(event) => vec![event],
        }
    }

    #[test]
    fn what_is_added_stands_behind_what_was_displayed() {
        assert_eq!(shouted(display(&[("text/quiet", "a")])), [display(&[("text/quiet", "a"), ("text/loud", "A")])]);
        let own = || display(&[("text/quiet", "a"), ("text/loud", "own")]);
        assert_eq!(shouted(own()), [own()]);
        assert_eq!(shouted(display(&[("text/plain", "a")])), [display(&[("text/plain", "a")])]);
    }

    #[test]
    fn nothing_is_drawn_for_a_run_that_was_cancelled() {
        struct Never;
        impl Renderer for Never {
            fn render(&self, _: &MimeBundle) -> Option<RenderFuture> {
                Some(Box::pin(std::future::pending()))
            }
        }
        let renderers: [Arc<dyn Renderer>; 1] = [Arc::new(Never)];
        let stopped = || -> Stopped { Box::pin(std::future::ready(())) };
        let Begun::Rendering(rendering) =
            begin(&renderers, || unreachable!("no table"), display(&[("text/quiet", "a")]), stopped)
        else {
            panic!("it is rendered")
        };
        let events = futures::executor::block_on(rendering);
        assert_eq!((events.len(), &events[0]), (3, &display(&[("text/quiet", "a")])));
    }

    #[test]
    fn what_goes_wrong_is_told_and_the_value_shown() {
        let [shown, told, status] = shouted(display(&[("text/quiet", "")])).try_into().expect("three events");
        assert_eq!(shown, display(&[("text/quiet", "")]));
        assert_eq!(told, EventKind::Stderr { index: 1, text: "Silence: nothing\n".to_owned() });
        assert!(
            matches!(status, EventKind::Status { index: 1, op, fields } if op == "render_failed" && fields.len() == 1)
        );
    }
}
