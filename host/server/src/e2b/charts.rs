//! Charts as clients have them, of figures of Matplotlib, whose data the guest says, and of the specifications in Vega-Lite
//! that cells display: plain lines, points, bars and sectors, with the data in the specification. What is more than that is no chart to clients, who have its picture.

use serde_json::{Map, Value, json};

/// Type of the charts that the data guest makes of figures of Matplotlib, and their kinds.
pub(super) const FIGURE: &str = "application/vnd.e2b.chart+json";
const KINDS: [&str; 6] = ["line", "scatter", "bar", "pie", "box_and_whisker", "superchart"];
/// Points of a chart; one with more has only its picture.
const POINTS_MAX: usize = 10_000;
/// Lines of a chart, each of which is looked for among the others.
const LINES_MAX: usize = 100;

/// The chart that a specification describes, if it is one that clients know.
pub(super) fn chart(mime_type: &str, text: &str) -> Option<Value> {
    if mime_type == FIGURE {
        // The guest writes it; what is none of theirs is left out.
        let chart: Value = serde_json::from_str(text).ok()?;
        return chart.get("type").and_then(Value::as_str).is_some_and(|kind| KINDS.contains(&kind)).then_some(chart);
    }
    if !mime_type.starts_with("application/vnd.vegalite.v") {
        return None;
    }
    let spec: Value = serde_json::from_str(text).ok()?;
    let rows = rows(&spec)?;
    let mark = spec.get("mark")?;
    let mark = mark.as_str().or_else(|| mark.get("type")?.as_str())?;
    let encoding = spec.get("encoding")?.as_object()?;
    // What a chart would have to compute is not in its data.
    let is_plain = |channel: &Value| ["aggregate", "bin", "timeUnit"].iter().all(|key| is_absent(channel.get(key)));
    if spec.get("transform").is_some() || !encoding.values().all(is_plain) {
        return None;
    }
    let title = spec.get("title").and_then(|title| title.as_str().or_else(|| title.get("text")?.as_str()));
    let drawn = Drawn { rows, encoding, title };
    match mark {
        "line" => drawn.points("line"),
        "point" | "circle" | "square" => drawn.points("scatter"),
        "bar" => drawn.bars(),
        "arc" => drawn.sectors(),
        _ => None,
    }
}

fn is_absent(value: Option<&Value>) -> bool {
    matches!(value, None | Some(Value::Null | Value::Bool(false)))
}

fn rows(spec: &Value) -> Option<&Vec<Value>> {
    let data = spec.get("data")?;
    let rows = match data.get("name").and_then(Value::as_str) {
        Some(name) => spec.get("datasets")?.get(name)?,
        None => data.get("values")?,
    };
    rows.as_array().filter(|rows| rows.len() <= POINTS_MAX)
}

struct Drawn<'a> {
    rows: &'a Vec<Value>,
    encoding: &'a Map<String, Value>,
    title: Option<&'a str>,
}

impl Drawn<'_> {
    fn field(&self, channel: &str) -> Option<&str> {
        // A dot of a name is escaped in a specification.
        self.encoding.get(channel)?.get("field")?.as_str().filter(|field| !field.contains(['\\', '.', '[']))
    }

    fn label(&self, channel: &str) -> Option<&str> {
        let title = self
            .encoding
            .get(channel)
            .and_then(|channel| channel.get("title").or_else(|| channel.get("axis")?.get("title")));
        title.and_then(Value::as_str).or_else(|| self.field(channel))
    }

    /// The kind of the scale of an axis.
    fn scale(&self, channel: &str) -> &str {
        let Some(channel) = self.encoding.get(channel) else { return "linear" };
        match channel.get("scale").and_then(|scale| scale.get("type")).and_then(Value::as_str) {
            Some(kind @ ("log" | "symlog")) => kind,
            _ => match channel.get("type").and_then(Value::as_str) {
                Some("temporal") => "datetime",
                Some("nominal" | "ordinal") => "categorical",
                _ => "linear",
            },
        }
    }

    fn points(&self, kind: &str) -> Option<Value> {
        let (x, y) = (self.field("x")?, self.field("y")?);
        let mut lines: Vec<(String, Vec<Value>)> = Vec::new();
        for row in self.rows {
            let label = self.field("color").map(|colour| words(row.get(colour))).unwrap_or_default();
            let point = json!([row.get(x)?, row.get(y)?]);
            match lines.iter().position(|(known, _)| *known == label) {
                Some(place) => lines[place].1.push(point),
                None if lines.len() >= LINES_MAX => return None,
                None => lines.push((label, vec![point])),
            }
        }
        let elements: Vec<Value> =
            lines.into_iter().map(|(label, points)| json!({ "label": label, "points": points })).collect();
        let mut chart = self.axes(kind, elements);
        for axis in ["x", "y"] {
            chart.insert(format!("{axis}_scale"), self.scale(axis).into());
            // Where ticks are is known to whoever draws.
            chart.insert(format!("{axis}_ticks"), json!([]));
            chart.insert(format!("{axis}_tick_labels"), json!([]));
        }
        Some(Value::Object(chart))
    }

    fn bars(&self) -> Option<Value> {
        let is_number = |channel: &str| {
            self.encoding.get(channel).and_then(|channel| channel.get("type")?.as_str()) == Some("quantitative")
        };
        let (label, value) = if is_number("x") && !is_number("y") { ("y", "x") } else { ("x", "y") };
        let (label, value) = (self.field(label)?, self.field(value)?);
        let group = self.field("color");
        let bar = |row: &Value| {
            let group = group.map(|group| words(row.get(group))).unwrap_or_default();
            Some(json!({ "label": words(row.get(label)), "group": group, "value": row.get(value)? }))
        };
        let elements: Vec<Value> = self.rows.iter().map(bar).collect::<Option<_>>()?;
        Some(Value::Object(self.axes("bar", elements)))
    }

    fn sectors(&self) -> Option<Value> {
        let (angle, label) = (self.field("theta")?, self.field("color"));
        let numbers: Vec<f64> = self.rows.iter().map(|row| row.get(angle)?.as_f64()).collect::<Option<_>>()?;
        let whole: f64 = numbers.iter().sum();
        if !(whole.is_finite() && whole > 0.0) {
            return None;
        }
        let sector = |(row, number): (&Value, f64)| {
            let label = label.map(|label| words(row.get(label))).unwrap_or_default();
            json!({ "label": label, "angle": number / whole * 360.0, "radius": 1.0 })
        };
        let elements: Vec<Value> = self.rows.iter().zip(numbers).map(sector).collect();
        Some(json!({ "type": "pie", "title": self.title, "elements": elements }))
    }

    fn axes(&self, kind: &str, elements: Vec<Value>) -> Map<String, Value> {
        let chart = json!({
            "type": kind,
            "title": self.title,
            "x_label": self.label("x"),
            "y_label": self.label("y"),
            "x_unit": null,
            "y_unit": null,
            "elements": elements,
        });
        chart.as_object().cloned().unwrap_or_default()
    }
}

/// A value as a label.
fn words(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "application/vnd.vegalite.v6+json";

    fn of(spec: &Value) -> Option<Value> {
        chart(TYPE, &spec.to_string())
    }

    #[test]
    fn plain_charts_are_told_and_others_are_not() {
        let spec = |mark: &str, encoding: Value| {
            json!({
                "title": "t", "mark": {"type": mark}, "encoding": encoding, "data": {"name": "d"},
                "datasets": {"d": [{"a": 1, "b": 2, "c": "u"}, {"a": 3, "b": 6, "c": "v"}]},
            })
        };
        let xy = json!({"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative", "title": "B"}});
        let line = of(&spec("line", xy.clone())).expect("a chart");
        assert_eq!((&line["type"], &line["y_label"]), (&"line".into(), &"B".into()));
        assert_eq!(line["elements"], json!([{"label": "", "points": [[1, 2], [3, 6]]}]));
        let bars = json!({"x": {"field": "b", "type": "quantitative"}, "y": {"field": "c", "type": "nominal"}});
        assert_eq!(
            of(&spec("bar", bars)).expect("a chart")["elements"][1],
            json!({"label": "v", "group": "", "value": 6})
        );
        let pie = json!({"theta": {"field": "b"}, "color": {"field": "c"}});
        assert_eq!(of(&spec("arc", pie)).expect("a chart")["elements"][0]["angle"], 90.0);
        let mean = json!({"x": {"field": "a"}, "y": {"field": "b", "aggregate": "mean"}});
        for other in [spec("bar", mean), spec("geoshape", xy), json!({}), json!([1]), json!({"data": {"values": 3}})] {
            assert!(of(&other).is_none(), "{other}");
        }
        assert!(chart("application/json", "{}").is_none() && chart(TYPE, "{").is_none());
    }

    #[test]
    fn a_figure_says_its_chart_itself() {
        let bars = r#"{"type":"bar","title":null,"elements":[{"label":"a","group":"","value":1}]}"#;
        assert_eq!(chart(FIGURE, bars).map(|chart| chart["elements"][0]["value"].clone()), Some(1.into()));
        for text in ["{", "[]", r#"{"type":"else"}"#, r#"{"elements":[]}"#] {
            assert_eq!(chart(FIGURE, text), None, "{text}");
        }
    }
}
