use super::*;

#[test]
fn a_url_is_told_without_what_may_be_secret() {
    for (url, bare) in [
        ("https://api.example.com/v1/rows?key=s3cret#part", "https://api.example.com/v1/rows"),
        ("https://user:s3cret@example.com:8443", "https://example.com:8443"),
        ("http://a@b@example.com/x@y", "http://example.com/x@y"),
        ("https://example.com?s3cret", "https://example.com"),
    ] {
        assert_eq!(bare_url(url), bare);
    }
}

#[test]
fn times_are_utc() {
    let time = now();
    assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00.000000Z".len(), "{time}");
}
