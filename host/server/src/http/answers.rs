//! Answers that interfaces give in the same form: JSON, a page of a list, nothing.

use std::collections::HashMap;

use axum_core::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::Value;

use crate::problem::Problem;

/// An answer that has nothing to say.
pub(crate) fn empty() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Cuts a page out of a list that is in the order of its names, as `limit` and `after` ask: the page, and the `after` of the
/// next.
pub(crate) fn page<T>(
    asked: &HashMap<String, String>,
    list: Vec<T>,
    name: impl Fn(&T) -> &str,
) -> Result<(Vec<T>, Option<String>), Problem> {
    let limit = match asked.get("limit") {
        None => PAGE,
        Some(text) => {
            let limit = text.parse::<usize>().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
            limit.ok_or_else(|| Problem::bad(format!("`limit` is a number from 1 to {PAGE_MAX}")))?
        }
    };
    let after = asked.get("after").map(String::as_str);
    let mut rest = list.into_iter().filter(|item| after.is_none_or(|after| name(item) > after));
    let page: Vec<T> = rest.by_ref().take(limit).collect();
    let next = rest.next().and_then(|_| page.last()).map(|last| name(last).to_owned());
    Ok((page, next))
}

/// Items of a page without `limit`.
const PAGE: usize = 100;
/// Items that a page may have.
const PAGE_MAX: usize = 1_000;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value).map_err(|error| Problem::internal(&error, "json"))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A page, with where the next begins, which is null on the last.
pub(crate) fn with_next(mut body: Value, next: Option<String>) -> Value {
    body["next"] = next.into();
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another() {
        let list = || vec!["a", "b", "c"];
        let asked = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            page(&pairs, list(), |name| name).map_err(|problem| problem.words())
        };
        assert_eq!(asked(&[]).expect("a page"), (list(), None));
        assert_eq!(asked(&[("limit", "2")]).expect("a page"), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(asked(&[("limit", "2"), ("after", "b")]).expect("a page"), (vec!["c"], None));
        // What was named may have gone meanwhile.
        assert_eq!(asked(&[("limit", "1"), ("after", "aa")]).expect("a page"), (vec!["b"], Some("b".to_owned())));
        for limit in ["0", "1001", "x", "-1"] {
            assert!(asked(&[("limit", limit)]).is_err(), "{limit}");
        }
    }
}
