//! Draws charts: specifications of Vega-Lite and Vega become SVG and PNG.
//!
//! Vega is a program that runs programs: a specification has expressions, loops and data of any size. It runs in a sandbox
//! like those of cells, in the guest `javascript-charts`, which is granted nothing and ends with its chart. What comes out
//! is checked before anybody sees it, and drawn by `resvg` with fonts of this machine: in a process of its own, which is
//! killed when its time is over or nobody waits any more, if the program offers one (`cellar_worker::offer`); else within
//! this process, where charts that might take long are not made a PNG.
//!
//! [`Charts`] is a [`Renderer`]: a session that has it adds an SVG and a PNG to what its cells display as a specification.
//! It also draws a specification for whoever asks:
//!
//! ```no_run
//! use cellar_charts::{ChartError, Charts};
//! use cellar_engine::{Host, SessionConfig, config::OutputOptions};
//!
//! # async fn example(host: Host, specification: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let charts = Charts::new(host.clone());
//! let chart = charts.draw(specification).await?;
//! std::fs::write("chart.svg", &chart.svg)?;
//! std::fs::write("chart.png", chart.png?)?;
//! // Or wherever a cell displays one:
//! let outputs = OutputOptions { renderers: vec![charts.into()], ..OutputOptions::default() };
//! let session = host.session(SessionConfig { outputs, ..SessionConfig::default() })?;
//! # Ok(())
//! # }
//! ```

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod check;
mod error;
mod fonts;
mod painter;
mod png;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use cellar_core::{text::describe, time::later};
use cellar_engine::{
    Cell, GuestName, Host, Language, Limits, SessionConfig,
    config::{CpuShare, KernelOptions, SharedBudgets},
    guests::{BakeOptions, bake},
    mime::{MimeBundle, MimeData},
    renderer::{RenderError, RenderFuture, Rendered, Renderer},
};
use tokio::sync::Semaphore;

pub use error::ChartError;
use fonts::Fonts;
pub use painter::{JOB, serve};
use png::Effort;

/// Bytes of a specification, its data included.
pub const SPECIFICATION_BYTES_MAX: usize = 8 << 20;
/// Bytes of an SVG.
pub const SVG_BYTES_MAX: usize = 8 << 20;
/// Wall-clock time of one chart, unless [`Charts::with_timeout`] says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Linear memory of the kernel that draws one, in bytes.
const MEMORY_BYTES: u64 = 384 << 20;
/// Grace period of the guest to stop.
const GRACE: Duration = Duration::from_millis(200);
/// Maximum number of charts that one [`Charts`] draws concurrently; more wait. It bounds memory: kernels share processors
/// anyway.
const CHARTS_AT_ONCE: usize = 8;

/// Type of the SVG that is added.
const SVG: &str = "image/svg+xml";
/// Type of the PNG that is added.
const PNG: &str = "image/png";

/// Draws charts, and SVG images that cells display, on a host. A cheap handle.
#[derive(Clone)]
pub struct Charts {
    inner: Arc<Inner>,
    timeout: Duration,
    share: Option<CpuShare>,
}

struct Inner {
    host: Host,
    /// Fonts of this machine, loaded when the first chart is drawn.
    fonts: OnceLock<Fonts>,
    turns: Semaphore,
}

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// SVG as drawn by Vega. It has no script, no link and nothing that is loaded from elsewhere.
    pub svg: String,
    /// PNG of the chart, at twice the size unless that is too large; or the error.
    pub png: Result<Vec<u8>, ChartError>,
}

impl std::fmt::Debug for Charts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Charts").field("host", &self.inner.host).finish_non_exhaustive()
    }
}

impl From<Charts> for Arc<dyn Renderer> {
    fn from(charts: Charts) -> Arc<dyn Renderer> {
        Arc::new(charts)
    }
}

impl Charts {
    /// Draws on this host, whose folder of guests should have `javascript-charts`. Nothing is loaded before the first chart,
    /// and the guest is baked by it if it has to be.
    pub fn new(host: Host) -> Charts {
        let inner = Inner { host, fonts: OnceLock::new(), turns: Semaphore::new(CHARTS_AT_ONCE) };
        Charts { inner: Arc::new(inner), timeout: TIMEOUT, share: None }
    }

    /// Gives each chart this long, within the bounds that cells have.
    pub fn with_timeout(self, timeout: Duration) -> Charts {
        Charts { timeout, ..self }
    }

    /// Sets the CPU share in which the guest draws: that of the caller on whose behalf it works.
    pub fn with_share(self, share: Option<CpuShare>) -> Charts {
        Charts { share, ..self }
    }

    /// Draws a specification of Vega-Lite or Vega: a JSON object that includes its data. Its `$schema` determines which of
    /// the two it is; without one, `marks` at the top level means Vega.
    ///
    /// # Errors
    /// See [`ChartError`]. A chart without a PNG is not an error: [`Chart::png`] has the reason.
    ///
    /// # Cancel safety
    /// Dropping the future ends the kernel, and the process that makes the PNG. Where there is no such process, a PNG in
    /// progress is finished, which takes seconds at most, and dropped.
    pub async fn draw(&self, specification: &str) -> Result<Chart, ChartError> {
        let bytes = specification.len();
        if bytes > SPECIFICATION_BYTES_MAX {
            return Err(ChartError::TooLarge { bytes });
        }
        let _turn = self.inner.turns.acquire().await.map_err(|error| ChartError::Crash(error.to_string()))?;
        // The guest and what makes the PNG share the time.
        let deadline = later(Instant::now(), self.timeout);
        let inner = self.inner.clone();
        let widths = blocking(move || inner.fonts().widths().to_owned()).await?;
        let svg = self.svg(specification, &widths).await?;
        let svg = blocking(move || check::check(&svg).map(drop).map(|()| svg)).await??;
        if self.inner.fonts().family().is_none() {
            return Ok(Chart { svg, png: Err(ChartError::NoFont) });
        }
        let png = self.png(painter::Kind::Chart, &svg, deadline).await;
        Ok(Chart { svg, png })
    }

    /// Makes a PNG of an SVG image.
    ///
    /// # Errors
    /// See [`ChartError`].
    ///
    /// # Cancel safety
    /// As [`Charts::draw`].
    pub async fn draw_picture(&self, svg: &str) -> Result<Vec<u8>, ChartError> {
        let _turn = self.inner.turns.acquire().await.map_err(|error| ChartError::Crash(error.to_string()))?;
        self.png(painter::Kind::Picture, svg, later(Instant::now(), self.timeout)).await
    }

    /// Converts an SVG to a PNG in a separate process. Where there is none, an SVG with only elements of charts is
    /// converted in this process.
    async fn png(&self, kind: painter::Kind, svg: &str, deadline: Instant) -> Result<Vec<u8>, ChartError> {
        if let Some(png) = painter::in_process(kind, svg, &self.inner.guest(), self.timeout, deadline.into()).await {
            return png;
        }
        let (inner, svg) = (self.inner.clone(), svg.to_owned());
        blocking(move || check::check(&svg).and_then(|checked| png::png(&checked, inner.fonts(), Effort::Little)))
            .await?
    }

    /// Draws the chart in the guest. The result is not checked yet.
    async fn svg(&self, specification: &str, widths: &str) -> Result<String, ChartError> {
        // A JSON text is an expression of JavaScript.
        let literal = |text: &str| serde_json::Value::from(text).to_string();
        let code = format!("await drawChart({}, {})", literal(specification), literal(widths));
        let limits = Limits {
            timeout: self.timeout,
            timeout_max: self.timeout,
            grace: GRACE,
            memory_bytes: MEMORY_BYTES,
            output_bytes: 64 << 10,
            display_bytes: SVG_BYTES_MAX,
            calls_in_flight: 0,
            forks: 0,
            disk_bytes: 0,
            disk_files: 0,
            ..Limits::default()
        };
        let share = self.share.clone();
        let guests = vec![GuestName::JavaScriptCharts];
        let config = SessionConfig {
            kernels: KernelOptions { guests, ..KernelOptions::default() },
            limits,
            shared: SharedBudgets { cpu: share, ..SharedBudgets::default() },
            ..SessionConfig::default()
        };
        let session = self.inner.host.session(config)?;
        let cells = vec![Cell::new(Language::JavaScript, code)];
        let run = match session.run(cells.clone()) {
            Err(cellar_engine::Error::NotBaked { .. }) => {
                self.bake().await?;
                session.run(cells)?
            }
            run => run?,
        };
        let result = run.collect_result().await;
        let cell = result.cells.first();
        if let Some(failure) = cell.and_then(|cell| cell.failure.as_ref()) {
            return Err(ChartError::of(failure, self.timeout));
        }
        let drawn = cell.and_then(|cell| cell.bundles().find_map(|bundle| bundle.text(SVG)));
        // A display that is too large is left out by the engine.
        drawn.map(str::to_owned).ok_or(ChartError::Output)
    }

    /// Makes the guest ready, which another build of it, or of this program, has not been on this machine.
    async fn bake(&self) -> Result<(), ChartError> {
        let config = self.inner.host.config().clone();
        let note = |doing: &str| tracing::info!("getting the guest that draws charts ready: {doing}");
        let work = move || {
            bake(
                &config,
                GuestName::JavaScriptCharts,
                BakeOptions { progress: Some(&mut |doing| note(doing)), ..BakeOptions::default() },
            )
        };
        blocking(work).await?.map(drop).map_err(ChartError::from)
    }

    /// Renders the additions to a displayed value.
    async fn rendered(&self, drawn: Drawn) -> Rendered {
        let began = std::time::Instant::now();
        let (svg, png) = match drawn {
            Drawn::Chart(specification) => match self.draw(&specification).await {
                Ok(Chart { svg, png }) => (Some(svg), png.map_err(|error| chart_error(&error))),
                Err(error) => (None, Err(chart_error(&error))),
            },
            Drawn::Picture(svg) => (None, self.draw_picture(&svg).await.map_err(picture_error)),
        };
        let svg = svg.map(|svg| (SVG.to_owned(), MimeData::Text(svg)));
        let (png, error) = match png {
            Ok(png) => (Some((PNG.to_owned(), MimeData::Binary(png))), None),
            Err(error) => (None, Some(error)),
        };
        tracing::debug!(duration = ?began.elapsed(), error = error.as_ref().map(|error| &error.name), "drawn");
        Rendered { data: MimeBundle(svg.into_iter().chain(png).collect()), error }
    }
}

fn chart_error(error: &ChartError) -> RenderError {
    RenderError { name: error.name().to_owned(), message: describe(error) }
}

fn picture_error(error: ChartError) -> RenderError {
    let why = match error {
        ChartError::Png(why) | ChartError::Svg(why) => why,
        ChartError::Timeout { timeout } => format!("it takes longer than {timeout:?}"),
        error => describe(&error),
    };
    RenderError { name: "ImageRasterError".to_owned(), message: format!("the SVG image was not made a PNG: {why}") }
}

impl Inner {
    /// Folder of the guest.
    fn guest(&self) -> PathBuf {
        self.host.config().guests.join(GuestName::JavaScriptCharts.name())
    }

    fn fonts(&self) -> &Fonts {
        self.fonts.get_or_init(|| Fonts::load(Some(&self.guest())))
    }
}

/// Renderable part of a displayed value.
enum Drawn {
    /// A specification.
    Chart(String),
    /// An SVG image.
    Picture(String),
}

impl Renderer for Charts {
    fn render(&self, data: &MimeBundle) -> Option<RenderFuture> {
        if data.get(SVG).is_some() && data.get(PNG).is_some() {
            return None;
        }
        let specification = data.0.iter().find(|(name, _)| is_chart(name)).and_then(|(name, _)| data.text(name));
        let has_pixels = || data.0.iter().any(|(name, _)| name.starts_with("image/") && name != SVG);
        let drawn = match (specification, data.text(SVG)) {
            (Some(specification), _) => Drawn::Chart(specification.to_owned()),
            (None, Some(svg)) if !has_pixels() => Drawn::Picture(svg.to_owned()),
            _ => return None,
        };
        let charts = self.clone();
        Some(Box::pin(async move { charts.rendered(drawn).await }))
    }
}

/// Returns the font family of charts that name none, on this machine; `None` when there is no font, and charts are drawn as
/// SVG only. `guests` is the folder of guests. Searches all fonts.
pub fn font(guests: &Path) -> Option<String> {
    Fonts::load(Some(&guests.join(GuestName::JavaScriptCharts.name()))).family().map(str::to_owned)
}

/// Returns true if this is the MIME type of Vega or Vega-Lite specifications, of any version. Those of Vega-Lite 5 are
/// drawn as intended, most of the others as well. Jupyter uses two spellings.
fn is_chart(mime_type: &str) -> bool {
    let version = ["application/vnd.vegalite.v", "application/vnd.vega.v"]
        .into_iter()
        .find_map(|prefix| mime_type.strip_prefix(prefix))
        .and_then(|rest| rest.strip_suffix("+json").or_else(|| rest.strip_suffix(".json")));
    version.is_some_and(|version| version.bytes().next().is_some_and(|byte| byte.is_ascii_digit()))
}

/// Runs blocking work on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ChartError> {
    // A panic is the only way to fail: nobody aborts the task.
    tokio::task::spawn_blocking(work).await.map_err(|error| ChartError::Crash(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_known_by_their_type() {
        for name in
            ["application/vnd.vegalite.v5+json", "application/vnd.vegalite.v6.json", "application/vnd.vega.v5+json"]
        {
            assert!(is_chart(name), "{name}");
        }
        for name in ["application/json", "application/vnd.vega", "application/vnd.vegalite.vx+json", "image/svg+xml"] {
            assert!(!is_chart(name), "{name}");
        }
    }
}
