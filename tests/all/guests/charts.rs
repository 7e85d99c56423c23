//! Charts that cells display as specifications.
//!
//! `fixtures/charts/NAME.json` is a specification, `NAME.svg` what is drawn of it, and `NAME.grid` how bright the PNG is, place
//! by place. With `CELLAR_BLESS=1` the latter two are written: look at the charts then (`CELLAR_CHARTS=FOLDER` keeps the PNGs).

use std::{fs, path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_charts::{ChartError, Charts};
use cellar_engine::{Cell, Event, Language, SessionConfig, config::OutputOptions, mime::MimeData};
use futures::StreamExt;
use serde_json::{Value, json};

use super::snapshots::{host, on_runtime};
use crate::support::{PATIENCE, result_of, root, text};

/// Tolerance for a number in an SVG, in pixels: another version of the font is a little wider.
const OFF_BY: f64 = 1.5;
/// Places of a grid.
const GRID: (u32, u32) = (32, 24);
/// Tolerances for the brightness, of 15: of one place, and of all together on average.
const SHADE_OFF_BY: (f64, f64) = (4.0, 0.35);

fn charts() -> Charts {
    Charts::new(host())
}

/// A result's own representations of its only display.
fn display(result: &Value) -> &Value {
    let images = result["details"]["images"].as_array().expect("images");
    assert_eq!(images.len(), 1, "{result}");
    &images[0]
}

/// A cell that displays a specification, in each language.
fn cell_of(language: &str, specification: &str) -> String {
    let literal = Value::from(specification).to_string();
    let mime_type = "application/vnd.vegalite.v5+json";
    match language {
        "js" => format!("display({{mimeBundle: {{'{mime_type}': JSON.parse({literal})}}}})"),
        _ => format!("import json\ndisplay({{'{mime_type}': json.loads({literal})}}, raw=True)"),
    }
}

/// Splits a text into its numbers and all between.
fn parts(text: &str) -> Vec<Result<f64, &str>> {
    let is_numeric = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_numeric(c) != is_numeric(first)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(part.parse().map_err(|_| part));
        rest = after;
    }
    parts
}

/// Describes how the lines of two SVGs differ, if they do.
fn difference(drawn: &str, expected: &str) -> Option<String> {
    let is_same = |drawn: &str, expected: &str| {
        let (drawn, expected) = (parts(drawn), parts(expected));
        drawn.len() == expected.len()
            && drawn.iter().zip(&expected).all(|pair| match pair {
                (Ok(drawn), Ok(expected)) => (drawn - expected).abs() <= OFF_BY,
                (drawn, expected) => drawn == expected,
            })
    };
    if drawn.lines().count() != expected.lines().count() {
        return Some(format!("{} lines, not {}", drawn.lines().count(), expected.lines().count()));
    }
    let mut lines = drawn.lines().zip(expected.lines());
    lines
        .find(|(drawn, expected)| !is_same(drawn, expected))
        .map(|(drawn, expected)| format!("{drawn}\nnot\n{expected}"))
}

/// Returns the size of a PNG, and its brightness in each place, 0 to 15.
fn grid(png: &[u8]) -> String {
    let image = image::load_from_memory_with_format(png, image::ImageFormat::Png).expect("a PNG").to_luma8();
    let small = image::imageops::resize(&image, GRID.0, GRID.1, image::imageops::FilterType::Triangle);
    let row = |y: u32| (0..GRID.0).map(|x| format!("{:x}", small.get_pixel(x, y).0[0] / 16)).collect::<String>() + "\n";
    format!("{} by {}\n{}", image.width(), image.height(), (0..GRID.1).map(row).collect::<String>())
}

/// Returns the largest and the average difference between the places of two grids, whose first lines are sizes.
fn shades_off(drawn: &str, expected: &str) -> (f64, f64) {
    let shades = |grid: &str| -> Vec<f64> {
        grid.lines().skip(1).flat_map(str::chars).filter_map(|c| c.to_digit(16)).map(f64::from).collect()
    };
    let (drawn, expected) = (shades(drawn), shades(expected));
    assert_eq!(drawn.len(), expected.len());
    let off: Vec<f64> = drawn.iter().zip(&expected).map(|(drawn, expected)| (drawn - expected).abs()).collect();
    (off.iter().copied().fold(0.0, f64::max), off.iter().sum::<f64>() / off.len() as f64)
}

fn check_file(path: &Path, drawn: &str, compare: impl Fn(&str, &str) -> Option<String>) {
    if std::env::var_os("CELLAR_BLESS").is_some() {
        return fs::write(path, drawn).expect("written");
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    if let Some(difference) = compare(drawn, &expected) {
        panic!("`{}`: {difference}\n(CELLAR_BLESS=1 accepts what is drawn now)", path.display());
    }
}

#[test]
fn charts_look_as_they_did() {
    on_runtime(async {
        let charts = charts();
        let mut files: Vec<_> = fs::read_dir(root().join("fixtures/charts"))
            .expect("the charts")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        files.sort();
        assert!(files.len() >= 12);
        for path in files {
            let specification = fs::read_to_string(&path).expect("a specification");
            let chart = charts.draw(&specification).await.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let png = chart.png.expect("a PNG");
            if let Some(folder) = std::env::var_os("CELLAR_CHARTS") {
                let name = path.with_extension("png");
                fs::write(Path::new(&folder).join(name.file_name().expect("a name")), &png).expect("written");
            }
            check_file(&path.with_extension("svg"), &(chart.svg.replace("><", ">\n<") + "\n"), difference);
            check_file(&path.with_extension("grid"), &grid(&png), |drawn, expected| {
                let (most, mean) = shades_off(drawn, expected);
                let is_off = most > SHADE_OFF_BY.0 || mean > SHADE_OFF_BY.1;
                is_off.then(|| format!("off by {most} of 15 somewhere, and by {mean:.2} on average:\n{drawn}"))
            });
        }
    });
}

#[test]
fn a_specification_that_a_cell_displays_becomes_an_image() {
    let specification = fs::read_to_string(root().join("fixtures/charts/bar.json")).expect("a specification");
    for language in ["py", "js"] {
        let result = result_of(language, &[&cell_of(language, &specification)], &[]);
        assert_eq!(result["isError"], false, "{result}");
        let image = display(&result);
        assert_eq!(image["mimeType"], "image/png", "{language}");
        let png = STANDARD.decode(image["data"].as_str().expect("base64")).expect("base64");
        assert!(grid(&png).starts_with("74"), "{}", grid(&png));
        assert_eq!(result["content"].as_array().map(Vec::len), Some(2), "{language}: {result}");

        let plain = result_of(language, &[&cell_of(language, &specification)], &["--no-charts"]);
        assert_eq!(plain["content"].as_array().map(Vec::len), Some(1), "{language}: {plain}");
        assert_eq!(plain["details"]["jsonOutputs"][0]["mark"], "bar", "{language}: {plain}");
    }
}

#[test]
fn charts_of_altair_are_drawn() {
    let code = "table = pd.DataFrame({'a': ['x', None], 'b': [1.5, float('nan')]})\n\
                alt.Chart(table, title='Two bars').mark_bar().encode(x='a', y='b')";
    let result = result_of("py", &[code], &["--guest", "python-data"]);
    assert_eq!(display(&result)["mimeType"], "image/png", "{result}");
    assert_eq!(text(&result), "(displayed 1 image(s); no text output)");
}

#[test]
fn events_have_the_chart_beside_its_specification_and_a_replay_too() {
    on_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("recording");
        let host = host();
        let renderers = || vec![Charts::new(host.clone()).into()];
        let config = SessionConfig {
            outputs: OutputOptions { renderers: renderers(), ..OutputOptions::default() },
            record: Some(file.clone()),
            ..SessionConfig::default()
        };
        let session = host.session(config).expect("a session");
        let bar = fs::read_to_string(root().join("fixtures/charts/bar.json")).expect("a specification");
        let code =
            format!("print('before')\n{};\n{}\nprint('after')", cell_of("js", &bar), cell_of("js", r#"{"mark": 3}"#))
                .replace("print", "console.log");
        let run = session.run(vec![Cell::new(Language::JavaScript, code)]).expect("a run");
        let events: Vec<Event> = run.collect().await;
        session.end_recording().expect("a recording");
        // The first tells of the code.
        let told: Vec<String> = events.iter().skip(1).map(|event| format!("{:?}", event.kind)).collect();
        let place = |what: &str| {
            told.iter().position(|event| event.contains(what)).unwrap_or_else(|| panic!("{what}: {told:?}"))
        };
        assert!(place("before") < place("image/svg+xml") && place("image/svg+xml") < place("ChartSpecificationError"));
        assert!(place("ChartSpecificationError") < place("after"));
        assert!(told[place("image/svg+xml")].contains("application/vnd.vegalite.v5+json"));

        let mut replay = host.replay(&file).expect("a recording").with_renderers(renderers());
        let mut replayed = Vec::new();
        while let Some(event) = replay.next().await.expect("a replay") {
            replayed.push(event.event);
        }
        assert!(replayed == events, "the replay shows something else");
    });
}

/// Specifications that do harm, and the name that each meets.
fn attacks() -> Vec<(&'static str, String, &'static str)> {
    let bar = |data: Value| json!({"data": data, "mark": "bar", "encoding": {"x": {"field": "a"}}}).to_string();
    let vega = |more: Value| {
        let mut specification =
            json!({"$schema": "https://vega.github.io/schema/vega/v5.json", "width": 10, "height": 10});
        let fields = specification.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        specification.to_string()
    };
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let concatenated =
        |levels: usize| format!("{}{{\"mark\": \"bar\"}}{}", r#"{"hconcat": ["#.repeat(levels), "]}".repeat(levels));
    let slow = r#"test(/^(a+)+$/, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab')"#;
    let filled = json!({"type": "sequence", "start": 0, "stop": 1e9});
    let image = |url: &str| {
        vega(
            json!({"marks": [{"type": "image", "encode": {"enter": {"url": {"value": url}, "width": {"value": 9}, "height": {"value": 9}}}}]}),
        )
    };
    vec![
        ("an endless expression", vega(json!({"signals": [{"name": "a", "init": slow}]})), "ChartTimeout"),
        (
            "endless data",
            vega(json!({"data": [{"name": "a", "transform": [filled]}]})),
            "ChartOutOfMemory ChartTimeout",
        ),
        ("data of a network", bar(json!({"url": "https://example.com/data.csv"})), "ChartResourceError"),
        ("data of a file", bar(json!({"url": "file:///etc/passwd", "format": {"type": "csv"}})), "ChartResourceError"),
        ("data of a folder", bar(json!({"url": "/workspace/data.csv"})), "ChartResourceError"),
        ("an image of a network", image("https://example.com/a.png"), "ChartResourceError"),
        ("an image in an address", image("data:image/svg+xml;base64,PHN2Zy8+"), "ChartResourceError"),
        ("JSON that is deep", format!(r#"{{"mark": {}}}"#, nested(200_000)), "ChartSpecificationError"),
        ("views that are deep", concatenated(20_000), "ChartSpecificationError ChartOutOfMemory ChartTimeout"),
        ("no JSON", "mark: bar".to_owned(), "ChartSpecificationError"),
        ("no object", "[]".to_owned(), "ChartSpecificationError"),
        ("no mark", r#"{"mark": "nothing"}"#.to_owned(), "ChartSpecificationError"),
        (
            "an expression that is none",
            vega(json!({"signals": [{"name": "a", "update": "while(1){}"}]})),
            "ChartSpecificationError",
        ),
        (
            "a way out of an expression",
            vega(json!({"signals": [{"name": "a", "update": "toString.constructor('return 1')()"}]})),
            "ChartSpecificationError",
        ),
        ("much data", bar(json!({"values": "a".repeat(9 << 20)})), "ChartTooLarge"),
        (
            "a giant",
            vega(
                json!({"width": 1e7, "height": 1e7, "marks": [{"type": "rect", "encode": {"enter": {"width": {"value": 1e7}, "height": {"value": 1e7}, "fill": {"value": "red"}}}}]}),
            ),
            "ChartRasterError",
        ),
    ]
}

#[test]
fn attacks_meet_a_name_and_leave_what_draws_usable() {
    on_runtime(async {
        let host = host();
        let charts = Charts::new(host.clone()).with_timeout(Duration::from_secs(2));
        for (what, specification, names) in attacks() {
            let drawn = charts.draw(&specification).await;
            let error = drawn.and_then(|chart| chart.png).expect_err(what);
            assert!(names.split(' ').any(|name| name == error.name()), "{what}: {}: {error}", error.name());
        }
        let bar = fs::read_to_string(root().join("fixtures/charts/bar.json")).expect("a specification");
        assert!(charts.draw(&bar).await.is_ok_and(|chart| chart.png.is_ok()));
        assert!(matches!(charts.draw("{}").await, Err(ChartError::Specification(_))));
    });
}

#[test]
fn charts_that_take_long_end_with_their_time() {
    // Some hundred kilobytes that keep whatever draws them busy for minutes.
    let curves: String =
        (0..60_000).map(|n| format!("Q{},{} {},{}", n % 999, n % 777, n * 617 % 1000, n * 331 % 1000)).collect();
    let path = json!({"path": {"value": format!("M0,0{curves}")}, "fill": {"value": "red"}, "stroke": {"value": "blue"}, "strokeWidth": {"value": 300}});
    let marks = json!([{"type": "path", "encode": {"enter": path}}]);
    let specification =
        json!({"$schema": "https://vega.github.io/schema/vega/v5.json", "width": 1000, "height": 1000, "marks": marks});
    let cell = cell_of("py", &specification.to_string()).replace("vnd.vegalite.v5", "vnd.vega.v5");
    let began = std::time::Instant::now();
    let result = result_of("py", &[&cell, "6 * 7"], &[]);
    // Ten seconds for the chart, which takes minutes, and the rest for a machine that does other things.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert!(text(&result).contains("ChartTimeout: ") && text(&result).ends_with("42"), "{result}");
    // Without a process that could be killed, such a chart is not begun.
    on_runtime(async {
        let chart = charts().draw(&specification.to_string()).await.expect("an SVG");
        assert_eq!(chart.png.expect_err("no PNG").name(), "ChartRasterError");
    });
}

#[test]
fn what_a_specification_smuggles_is_text() {
    on_runtime(async {
        let hostile = r#"</text><script>alert(1)</script><text onload="alert(1)">"#;
        let specification = json!({
            "title": hostile, "description": hostile,
            "data": {"values": [{"a": hostile, "b": 1, "link": "javascript:alert(1)"}]},
            "mark": {"type": "bar", "cursor": hostile, "font": hostile, "href": "javascript:alert(1)"},
            "encoding": {"x": {"field": "a"}, "y": {"field": "b", "type": "quantitative"}, "href": {"field": "link"}, "tooltip": {"field": "a"}},
        });
        let chart = charts().draw(&specification.to_string()).await.expect("a chart");
        assert!(
            !chart.svg.contains("<script") && !chart.svg.contains("href=") && !chart.svg.contains("<a"),
            "{}",
            chart.svg
        );
        assert!(chart.svg.contains("&lt;script"), "{}", chart.svg);
    });
}

#[test]
fn a_chart_that_cannot_be_drawn_fails_no_cell() {
    let refused = cell_of("py", r#"{"data": {"url": "https://example.com/a.csv"}, "mark": "bar"}"#);
    let result = result_of("py", &[&refused, "print('goes on')"], &[]);
    assert_eq!(result["isError"], false, "{result}");
    let shown = text(&result);
    assert!(shown.contains("ChartResourceError: charts load nothing") && shown.contains("goes on"), "{shown}");
    let status = &result["details"]["statusEvents"][0];
    assert_eq!(status["op"], "render_failed", "{result}");
    assert!(result["details"]["jsonOutputs"][0]["mark"] == "bar", "{result}");
    // One that brings its own pictures is not drawn again.
    let own = "display({'application/vnd.vegalite.v5+json': {'mark': 3}, 'image/svg+xml': '<svg/>', 'image/png': 'iVBORw0KGgo='}, raw=True)";
    let result = result_of("py", &[own], &[]);
    assert_eq!(text(&result), "(displayed 1 image(s); no text output)");
}

#[test]
fn a_host_without_the_guest_says_so() {
    on_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let guest = folder.path().join("javascript");
        std::os::unix::fs::symlink(root().join("target/guests/javascript"), guest).expect("a link");
        let config = cellar_engine::HostConfig::new(cellar_engine::HostFolders {
            guests: folder.path().to_owned(),
            cache: super::snapshots::cache(),
        });
        let host = cellar_engine::Host::open(config).expect("a host");
        let renderer: Arc<dyn cellar_engine::renderer::Renderer> = Charts::new(host.clone()).into();
        let session = host
            .session(SessionConfig {
                outputs: OutputOptions { renderers: vec![renderer], ..OutputOptions::default() },
                ..SessionConfig::default()
            })
            .expect("a session");
        let cell = Cell::new(Language::JavaScript, cell_of("js", r#"{"mark": "bar"}"#));
        let result = session.run(vec![cell]).expect("a run").collect_result().await;
        assert!(!result.is_error);
        assert!(
            result
                .text()
                .contains("ChartGuestError: charts cannot be drawn: the guest `javascript-charts` is not there"),
            "{}",
            result.text()
        );
        let shown: Vec<&MimeData> =
            result.cells[0].bundles().filter_map(|bundle| bundle.get("image/svg+xml")).collect();
        assert!(shown.is_empty());
    });
}

/// No interface of a model takes a vector image, and whatever a cell calls one, drawing it is bounded and reads no file.
#[test]
fn pictures_of_cells_are_drawn_for_models() {
    let svg = |body: &str| format!("<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'>{body}</svg>");
    let bomb: String =
        (1..12).map(|n| format!("<g id='g{n}'>{}</g>", format!("<use href='#g{}'/>", n - 1).repeat(10))).collect();
    let bomb = svg(&format!("<g id='g0'><rect width='1' height='1'/></g>{bomb}"));
    let cell = |svg: &str| format!("display({{'image/svg+xml': {}}}, raw=True)", Value::from(svg));
    let shown = |svg: &str| {
        let result = result_of("py", &[&cell(svg), "1 + 1"], &[]);
        let content = result["content"].as_array().expect("blocks");
        let images: Vec<String> = content[1..].iter().map(|block| block["mimeType"].to_string()).collect();
        (images, text(&result).to_owned())
    };
    let styled = svg("<style>rect{fill:red}</style><rect width='40' height='20'/>");
    let result = result_of("py", &[&cell(&styled)], &[]);
    assert_eq!(result["content"][1]["mimeType"], "image/png", "{result}");
    let png = STANDARD.decode(result["content"][1]["data"].as_str().expect("text")).expect("base64");
    let pixels = image::load_from_memory(&png).expect("a PNG").to_rgb8();
    assert_eq!((pixels.dimensions(), pixels.get_pixel(9, 9).0), ((80, 40), [255, 0, 0]));
    for bad in ["<svg", "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg xmlns='http://www.w3.org/2000/svg'>&a;</svg>", &bomb] {
        let (images, told) = shown(bad);
        assert!(images.is_empty() && told.contains("ImageRasterError: the SVG image was not made a PNG: "), "{told}");
        assert!(told.ends_with("\n2"), "{told}");
    }
    let (images, _) = shown(&svg("<image href='file:///etc/passwd' width='9' height='9'/>"));
    assert_eq!(images, ["\"image/png\""]);
}
