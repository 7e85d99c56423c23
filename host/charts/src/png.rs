//! Conversion of a checked SVG to a PNG. Once started, only the end of its process stops it. Where that is not an option,
//! the duration is estimated, and a conversion that might take long is not started.

use resvg::{
    tiny_skia::{PathSegment, Pixmap, Transform},
    usvg::{self, Group, Node, Rect, roxmltree::Document},
};

use crate::{
    error::ChartError,
    fonts::{self, Fonts},
};

/// Scale of a PNG relative to the chart's own size, so that its texts are legible.
const SCALE: f32 = 2.0;
/// The least it may be made smaller.
const SCALE_MIN: f32 = 0.1;
/// Pixels of a PNG.
const PIXELS_MAX: f32 = 4_000_000.0;
/// Pixels on a side.
const SIDE_MAX: f32 = 8_000.0;
/// Work that a chart may take: about one pixel that is filled each, a billion in a second or two.
const WORK_MAX: f64 = 1e9;
/// Work of a point of a path.
const POINT_WORK: f64 = 50.0;
/// Lines that a curve is cut into, that each becomes when it is stroked, and that a dash has.
const CURVE_LINES: f64 = 16.0;
const STROKE_LINES: f64 = 4.0;
const DASH_LINES: f64 = 8.0;
/// Lines of a path that cost nothing more for crossing each other.
const CROSSED_FREE: f64 = 4.0;
/// Rows of a pixel, which smooth its edges.
const ROW_LINES: f64 = 4.0;
/// Bytes of texts and of paths that are drawn where drawing cannot be stopped: seconds of work before any can be estimated.
const TEXT_BYTES_MAX: usize = 16 << 10;
const PATH_BYTES_MAX: usize = 1 << 20;

/// Limit on the work of drawing a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Unlimited: the process that draws is killed when its time is over.
    Any,
    /// Some seconds by the worst estimate.
    Little,
}

/// Draws a chart.
pub(crate) fn png(document: &Document<'_>, fonts: &Fonts, effort: Effort) -> Result<Vec<u8>, ChartError> {
    // Without any font texts are left out; a chart is not drawn then.
    let family = fonts.family().unwrap_or("sans-serif");
    if effort == Effort::Little {
        check_size(document).map_err(ChartError::Png)?;
    }
    let options = usvg::Options {
        font_family: family.to_owned(),
        fontdb: fonts.database().clone(),
        font_resolver: fonts::resolver(),
        // The check lets no image pass; none would be loaded either.
        image_href_resolver: usvg::ImageHrefResolver {
            resolve_data: Box::new(|_, _, _| None),
            resolve_string: Box::new(|_, _| None),
        },
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_xmltree(document, &options).map_err(|error| ChartError::Png(error.to_string()))?;
    let (width, height) = (tree.size().width(), tree.size().height());
    let scale = SCALE.min((PIXELS_MAX / (width * height)).sqrt()).min(SIDE_MAX / width.max(height));
    if scale.is_nan() || scale < SCALE_MIN {
        return Err(ChartError::Png(format!("it is {width} by {height} pixels large")));
    }
    let work = match effort {
        Effort::Any => 0.0,
        Effort::Little => Canvas { width: width * scale, height: height * scale, scale }.group_work(tree.root()),
    };
    if work.is_nan() || work > WORK_MAX {
        return Err(ChartError::Png(format!(
            "its shapes overlap so much that it would take {:.0} times as long as it may",
            work / WORK_MAX
        )));
    }
    let pixels = |side: f32| (side * scale).ceil().max(1.0) as u32;
    let no_room = || ChartError::Png("there is no memory for it".to_owned());
    let mut pixmap = Pixmap::new(pixels(width), pixels(height)).ok_or_else(no_room)?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|error| ChartError::Png(error.to_string()))
}

/// Checks parts that cost time before there are shapes whose work can be estimated: arcs become curves, letters become
/// outlines.
fn check_size(document: &Document<'_>) -> Result<(), String> {
    let (mut text_bytes, mut path_bytes) = (0_usize, 0_usize);
    for node in document.descendants() {
        text_bytes = text_bytes.saturating_add(node.text().filter(|_| node.is_text()).map_or(0, str::len));
        path_bytes = path_bytes.saturating_add(node.attribute("d").map_or(0, str::len));
    }
    if text_bytes > TEXT_BYTES_MAX || path_bytes > PATH_BYTES_MAX {
        return Err(format!(
            "it has {text_bytes} bytes of text and {path_bytes} of paths, at most {TEXT_BYTES_MAX} and {PATH_BYTES_MAX} \
             are drawn without a process of its own"
        ));
    }
    Ok(())
}

/// Drawing area in pixels.
struct Canvas {
    width: f32,
    height: f32,
    scale: f32,
}

impl Canvas {
    /// Pixels of a box that are on the canvas.
    fn area(&self, bounds: Rect) -> f64 {
        let side = |from: f32, to: f32, end: f32| {
            f64::from((to * self.scale).min(end) - (from * self.scale).max(0.0)).max(0.0)
        };
        side(bounds.left(), bounds.right(), self.width) * side(bounds.top(), bounds.bottom(), self.height)
    }

    fn group_work(&self, group: &Group) -> f64 {
        let children: f64 = group.children().iter().map(|node| self.node_work(node)).sum();
        if !group.should_isolate() {
            return children;
        }
        // A layer of its own, that is drawn, perhaps cut, and laid over the others.
        let area = self.area(group.abs_layer_bounding_box().to_rect());
        let clip = group.clip_path().map_or(0.0, |clip| area + self.group_work(clip.root()));
        children + 3.0 * area + clip
    }

    fn node_work(&self, node: &Node) -> f64 {
        match node {
            Node::Group(group) => self.group_work(group),
            Node::Text(text) => self.group_work(text.flattened()),
            Node::Image(_) => 0.0,
            Node::Path(path) => {
                let bounds = path.abs_stroke_bounding_box();
                let points = path.data().points().len() as f64;
                // A path may go to and fro in its box as often as it has points.
                let dashes = path.stroke().and_then(usvg::Stroke::dasharray).map_or(0.0, |dashes| {
                    let length: f32 = dashes.iter().sum();
                    points * f64::from(bounds.width() + bounds.height()) / f64::from(length.max(0.01))
                });
                // A curve is cut into lines, and a stroke has outlines on both sides, with joins. Each line is followed
                // down the rows that it crosses, and sorted among the others there, which costs most where all cross.
                let is_curved =
                    |segment: PathSegment| matches!(segment, PathSegment::QuadTo(..) | PathSegment::CubicTo(..));
                let lines = points * if path.data().segments().any(is_curved) { CURVE_LINES } else { 1.0 };
                let outlines =
                    if path.stroke().is_some() { lines.max(4.0) * STROKE_LINES + dashes * DASH_LINES } else { 0.0 };
                let crossed = lines + outlines;
                let rows = ROW_LINES * f64::from((bounds.height() * self.scale).min(self.height).max(1.0));
                let crossings = crossed * rows.min(crossed) + (crossed / CROSSED_FREE).powi(2);
                // A path is filled and stroked, and each of its points may be a curve that is cut into many.
                let is_pattern = |paint: &usvg::Paint| matches!(paint, usvg::Paint::Pattern(_));
                let pattern = path.fill().is_some_and(|fill| is_pattern(fill.paint()));
                let layers = if pattern { 6.0 } else { 2.0 };
                layers * self.area(bounds) + POINT_WORK * (points + dashes + 4.0) + crossings
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    fn png_of(svg: &str) -> Result<Vec<u8>, String> {
        let document = check(svg).map_err(|error| error.to_string())?;
        png(&document, &Fonts::load(None), Effort::Little).map_err(|error| error.to_string())
    }

    fn svg(size: &str, body: &str) -> String {
        format!(r#"<svg xmlns="http://www.w3.org/2000/svg" {size}>{body}</svg>"#)
    }

    /// Width and height, as a PNG's header has them.
    fn size(png: &[u8]) -> (u32, u32) {
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
        (number(16), number(20))
    }

    #[test]
    fn charts_are_twice_as_large_unless_they_are_large() {
        let of = |width: u32, height: u32| {
            png_of(&svg(&format!(r#"width="{width}" height="{height}""#), "<rect width='9' height='9'/>"))
        };
        assert_eq!(size(&of(300, 200).expect("small")), (600, 400));
        assert_eq!(size(&of(4000, 1000).expect("large")), (4000, 1000));
        assert_eq!(size(&of(40_000, 10).expect("long")), (8000, 2));
        assert!(of(1_000_000, 1_000_000).expect_err("huge").contains("large"));
        assert!(of(1_000_000, 10).expect_err("far too long").contains("large"));
    }

    #[test]
    fn what_would_take_too_long_is_not_begun() {
        let size = r#"width="1000" height="1000""#;
        let check =
            |body: String| assert!(png_of(&svg(size, &body)).expect_err("refused").contains("as long as it may"));
        check("<rect width='1000' height='1000' opacity='0.5'/>".repeat(5_000));
        check("<g opacity='0.5'><rect width='1000' height='1000'/></g>".repeat(1_000));
        check("<path d='M0,0L1000,1000L0,1000L1000,0' stroke='red' stroke-dasharray='0.01'/>".repeat(1_000));
        assert!(png_of(&svg(size, &"<rect width='3' height='3'/>".repeat(20_000))).is_ok());
        let line = |points: u32, of: &dyn Fn(u32) -> String| (0..points).map(of).collect::<String>();
        let to = |n: u32| format!("L{},{}", n * 617 % 1000, n * 331 % 1000);
        let curve = |n: u32| format!("Q{},{} {},{}", n % 999, n % 777, n * 617 % 1000, n * 331 % 1000);
        let path = |data: String, more: &str| format!("<path d='M0,0{data}' {more}/>");
        check(path(line(100_000, &to), ""));
        check(path(line(60_000, &to), "stroke='red' stroke-width='500'"));
        check(path(line(30_000, &curve), ""));
        let refused = |body: String| assert!(png_of(&svg(size, &body)).expect_err("refused").contains("of its own"));
        refused(path(line(100_000, &|n| format!("A9,9 0 0 1 {},{}", n * 617 % 1000, n % 999)), ""));
        refused(format!("<text>{}</text>", "a".repeat(100_000)));
        // A long line of measurements, as charts have them.
        let measured = line(2_000, &|n| format!("L{},{}", f64::from(n) / 2.0, 500 + n * 331 % 200));
        assert!(png_of(&svg(size, &path(measured, "fill='none' stroke='red'"))).is_ok());
    }
}
