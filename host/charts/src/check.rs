//! Check of charts. The guest that draws a chart runs untrusted code, and the chart may be viewed in a browser: it must
//! contain no script, no link, nothing that is loaded, and nothing small that is expensive to draw.

use std::collections::HashSet;

use resvg::usvg::roxmltree::{Attribute, Document, Node, ParsingOptions};

use crate::{SVG_BYTES_MAX, error::ChartError};

/// SVG elements that Vega uses.
const ELEMENTS: [&str; 19] = [
    "svg",
    "g",
    "path",
    "rect",
    "line",
    "circle",
    "ellipse",
    "polygon",
    "polyline",
    "text",
    "tspan",
    "title",
    "desc",
    "defs",
    "clipPath",
    "linearGradient",
    "radialGradient",
    "stop",
    "pattern",
];
const NAMESPACE: &str = "http://www.w3.org/2000/svg";
/// Maximum number of elements and texts of a chart.
const NODES_MAX: u32 = 500_000;
/// Maximum nesting depth of elements. The renderer is recursive.
const DEPTH_MAX: usize = 128;
/// Maximum size of all texts in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of patterns, each of which may be drawn many times.
const PATTERNS_MAX: usize = 64;

/// Parses a chart, and refuses elements that charts must not contain.
pub(crate) fn check(svg: &str) -> Result<Document<'_>, ChartError> {
    if svg.len() > SVG_BYTES_MAX {
        return Err(ChartError::Output);
    }
    // Without a DTD there are no entities, and nothing refers to a file.
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(svg, options).map_err(|error| ChartError::Svg(error.to_string()))?;
    check_nodes(&document).map_err(ChartError::Svg)?;
    Ok(document)
}

/// Parses an image that a cell displayed. It is drawn in a separate process and never shown as it is, so its elements are
/// the renderer's concern; only the size and the number of nodes are limited, and the nesting depth, because drawing is
/// recursive.
pub(crate) fn check_picture(svg: &str) -> Result<Document<'_>, ChartError> {
    let refused = |why: String| Err(ChartError::Svg(why));
    if svg.len() > SVG_BYTES_MAX {
        return refused(format!("{} bytes, more than {SVG_BYTES_MAX}", svg.len()));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(without_doctype(svg), options)
        .map_err(|error| ChartError::Svg(error.to_string()))?;
    if document.descendants().any(|node| node.ancestors().skip(1).nth(DEPTH_MAX).is_some()) {
        return refused(format!("elements more than {DEPTH_MAX} deep in each other"));
    }
    Ok(document)
}

/// Returns a picture from behind the declaration of its document type, as Matplotlib and Graphviz write it. One that declares
/// something itself is returned whole, and so refused: it may have entities.
fn without_doctype(svg: &str) -> &str {
    let mut rest = svg.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = match rest {
            _ if rest.starts_with("<?") => rest.find("?>").map(|at| at.saturating_add(2)),
            _ if rest.starts_with("<!--") => rest.find("-->").map(|at| at.saturating_add(3)),
            _ if rest.starts_with("<!DOCTYPE") => return behind_doctype(rest).unwrap_or(svg),
            _ => return svg,
        };
        let Some(behind) = end.and_then(|end| rest.get(end..)) else { return svg };
        rest = behind.trim_start();
    }
}

/// Returns what follows a declaration that names a document type and declares nothing.
fn behind_doctype(text: &str) -> Option<&str> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, '[') => return None,
            (None, '>') => return text.get(at.saturating_add(1)..),
            _ => {}
        }
    }
    None
}

fn check_nodes(document: &Document<'_>) -> Result<(), String> {
    let patterns: HashSet<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("pattern"))
        .filter_map(|node| node.attribute("id"))
        .collect();
    if patterns.len() > PATTERNS_MAX {
        return Err(format!("{} patterns, more than {PATTERNS_MAX}", patterns.len()));
    }
    let mut text_bytes = 0_usize;
    for node in document.descendants() {
        if node.ancestors().skip(1).nth(DEPTH_MAX).is_some() {
            return Err(format!("elements more than {DEPTH_MAX} deep in each other"));
        }
        if node.is_text() {
            text_bytes = text_bytes.saturating_add(node.text().map_or(0, str::len));
        } else if node.is_element() {
            check_element(node, &patterns)?;
        }
    }
    if text_bytes > TEXT_BYTES_MAX {
        return Err(format!("{text_bytes} bytes of text, more than {TEXT_BYTES_MAX}"));
    }
    Ok(())
}

fn check_element(node: Node<'_, '_>, patterns: &HashSet<&str>) -> Result<(), String> {
    let name = node.tag_name();
    if name.namespace() != Some(NAMESPACE) || !ELEMENTS.contains(&name.name()) {
        return Err(format!("an element `{}`", clip(name.name())));
    }
    let is_in_pattern = node.ancestors().any(|node| node.has_tag_name("pattern"));
    for attribute in node.attributes() {
        check_attribute(&attribute)?;
        let is_pattern = |id: &str| patterns.contains(id);
        if is_in_pattern && references(attribute.value()).any(is_pattern) {
            return Err("a pattern that is made of patterns".to_owned());
        }
    }
    Ok(())
}

fn check_attribute(attribute: &Attribute<'_, '_>) -> Result<(), String> {
    let (name, value) = (attribute.name(), attribute.value());
    let is_elsewhere = match name.to_ascii_lowercase().as_str() {
        "href" | "src" => !value.starts_with('#'),
        // Handlers of events.
        name if name.starts_with("on") => return Err(format!("an attribute `{}`", clip(name))),
        _ => false,
    };
    let lower = value.to_ascii_lowercase();
    let is_loaded = lower.contains("url(") && references(value).count() != lower.matches("url(").count();
    if is_elsewhere || is_loaded || lower.contains("@import") {
        return Err(format!("a reference to `{}` outside of it", clip(value)));
    }
    Ok(())
}

/// The ids that an attribute refers to, as `url(#id)`.
fn references(value: &str) -> impl Iterator<Item = &str> {
    value.split("url(#").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Truncates a name or an address for a message.
fn clip(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_body(body: &str) -> Result<(), String> {
        let svg = format!(r#"<svg xmlns="{NAMESPACE}" xmlns:xlink="http://www.w3.org/1999/xlink">{body}</svg>"#);
        check(&svg).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn what_vega_draws_passes() {
        let body = r##"<defs><clipPath id="clip1"><rect width="1" height="1"/></clipPath>
            <radialGradient id="gradient_0"><stop offset="0"/></radialGradient>
            <pattern id="p_gradient_0"><rect fill="url(#gradient_0)"/></pattern></defs>
            <g clip-path="url(#clip1)" style="pointer-events: none"><path d="M0,0" fill="url(#p_gradient_0)"/><text>url(x)</text></g>"##;
        assert_eq!(check_body(body), Ok(()));
    }

    #[test]
    fn what_charts_do_not_hold_is_refused_by_name() {
        let check = |body: &str, expected: &str| {
            let refused = check_body(body).expect_err(body);
            assert!(refused.contains(expected), "{body}: {refused}");
        };
        check("<script>alert(1)</script>", "`script`");
        check("<image href='file:///etc/passwd'/>", "`image`");
        check("<g><foreignObject/></g>", "`foreignObject`");
        check("<use href='#a'/>", "`use`");
        check("<filter id='f'/>", "`filter`");
        check("<style>@import 'x'</style>", "`style`");
        check("<a xlink:href='https://example.com'><rect/></a>", "`a`");
        check("<x xmlns='urn:other'/>", "`x`");
        check("<g onload='alert(1)'/>", "`onload`");
        check("<rect xlink:href='https://example.com/x'/>", "`https://example.com/x`");
        check("<rect fill='url(https://example.com/x)'/>", "https://example.com/x");
        check("<rect style='fill: URL( \"#a\")'/>", "outside");
        check("<pattern id='a'><rect fill='url(#b)'/></pattern><pattern id='b'><rect/></pattern>", "pattern");
        check("<g>", "expected");
    }

    #[test]
    fn what_is_much_is_refused() {
        let deep = |levels: usize| format!("{}{}", "<g>".repeat(levels), "</g>".repeat(levels));
        assert_eq!(check_body(&deep(DEPTH_MAX - 1)), Ok(()));
        assert!(check_body(&deep(DEPTH_MAX)).expect_err("deep").contains("deep in each other"));
        // Neither slow nor fatal.
        assert!(check_body(&deep(100_000)).expect_err("deeper").contains("deep in each other"));
        assert!(
            check_body(&format!("<text>{}</text>", "a".repeat(300_000))).expect_err("text").contains("bytes of text")
        );
        assert!(check_body(&"<g/>".repeat(600_000)).expect_err("nodes").contains("nodes"));
        let declared = r#"<!-- <!DOCTYPE > --><?xml version="1.0"?>
            <!DOCTYPE svg PUBLIC "-//W3C//DTD SVG > 1.1//EN" "svg11.dtd"> <svg/>"#;
        assert!(check_picture(declared).is_ok() && check(declared).is_err());
        for hostile in ["<!DOCTYPE svg [<!ENTITY a 'b'>]><svg>&a;</svg>", "<!DOCTYPE svg", "<!-- <svg/>"] {
            assert!(check_picture(hostile).is_err(), "{hostile}");
        }
        assert!(matches!(check("<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>"), Err(ChartError::Svg(_))));
        assert!(matches!(check(&" ".repeat(SVG_BYTES_MAX + 1)), Err(ChartError::Output)));
    }
}
