//! Figures and lines in words: how long, how large, on one line.

use std::time::Duration;

use cellar_engine::event::Scalar;

use crate::terminal::escaped;

/// A duration, with two or three digits.
pub(crate) fn time(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 0.01 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{:.2} ms", seconds * 1e3),
    }
}

/// A number of bytes.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// `text` on one line, with what would break it or steer a terminal escaped.
pub(crate) fn one_line(text: &str) -> String {
    escaped(&text.replace('\t', " ")).into_owned()
}

/// Returns the line that stands for lines that are not shown.
pub(crate) fn more_lines(count: usize) -> String {
    match count {
        1 => "… 1 more line".to_owned(),
        _ => format!("… {count} more lines"),
    }
}

/// Describes what a helper did, on one line.
pub(crate) fn status(op: &str, fields: &[(String, Scalar)]) -> String {
    let value = |scalar: &Scalar| match scalar {
        Scalar::Text(text) => text.clone(),
        Scalar::Integer(number) => number.to_string(),
        Scalar::Number(number) => number.to_string(),
        Scalar::Boolean(value) => value.to_string(),
    };
    let mut line = format!("· {op}");
    for (name, scalar) in fields {
        match name.as_str() {
            "path" | "message" => line.push_str(&format!(" {}", value(scalar))),
            _ => line.push_str(&format!(" {name}={}", value(scalar))),
        }
    }
    one_line(&line)
}
