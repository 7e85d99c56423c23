//! Renderers, with which the host adds representations to what cells display: a picture of a chart's specification, a file
//! of a table.
//!
//! A [`Renderer`] adds to a displayed value on its way to the reader of the run, and to the reader of a replay. Recordings
//! do not contain the additions, which are rendered anew.

use std::{pin::Pin, sync::Arc};

use cellar_core::{
    event::{EventKind, HostStatus, Scalar},
    mime::{MimeBundle, MimeData},
};
use futures::future::{Either, select};

use crate::tables::{self, Tables};

/// Adds representations to displayed values. A session has any number of them: `OutputOptions::renderers`.
pub trait Renderer: Send + Sync {
    /// Begins to render a value, if this renderer supports its type. Called for every displayed value, in the run's own
    /// task: move expensive work into the future. The value is shown when the future completes, and later output of the
    /// cell waits for it, so the future must complete on its own. It is dropped with its run.
    fn render(&self, data: &MimeBundle) -> Option<RenderFuture>;
}

/// Future of a renderer's result.
pub type RenderFuture = Pin<Box<dyn Future<Output = Rendered> + Send>>;

/// Result of a renderer: additions to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Representations. The value's own representation takes precedence over an additional one of the same type.
    pub data: MimeBundle,
    /// Error that prevented further representations. It never fails the cell, which continues.
    pub error: Option<RenderError>,
}

/// Error of rendering a value. The run reports it on the cell's standard error, and its name in the status event
/// `render_failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderError {
    /// Name, in the style of exceptions: `ChartTimeout`.
    pub name: String,
    /// Message: the attempt, the problem, and the remedy.
    pub message: String,
}

/// Future of the events that replace a rendered one.
pub type Rendering = Pin<Box<dyn Future<Output = Vec<EventKind>> + Send>>;

/// State of an event once the renderers have seen it.
pub enum Begun {
    /// The event waits for the renderers' additions.
    Rendering(Rendering),
    /// No renderer adds anything to the event.
    AsItIs(EventKind),
}

impl Begun {
    /// Waits for the renderers. Returns the event, with those that they add.
    pub async fn ended(self) -> Vec<EventKind> {
        match self {
            Begun::Rendering(rendering) => rendering.await,
            Begun::AsItIs(event) => vec![event],
        }
    }
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Begun::Rendering(_) => f.write_str("Rendering"),
            Begun::AsItIs(event) => f.debug_tuple("AsItIs").field(event).finish(),
        }
    }
}

/// Future that completes when rendering is no longer wanted.
pub type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins to render the values that an event displays. `tables` is the destination of its table, if it has one. Renderings
/// that are not complete when `stopped` ends are dropped, and the value is shown without them.
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
    if table.is_none() {
        tables::tell_of_absent(data);
    }
    let begun: Vec<RenderFuture> = renderers.iter().filter_map(|renderer| renderer.render(data)).collect();
    match begun.is_empty() && table.is_none() {
        true => Begun::AsItIs(event),
        false => Begun::Rendering(Box::pin(rendered(event, table, begun, stopped()))),
    }
}

/// Returns the event with all additions, followed by the events of errors.
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
