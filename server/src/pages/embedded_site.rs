//! The site that is embedded in the program.
//!
//! A release is one file. It contains scripts, styles and fonts, compressed by `cargo xtask site`.
//! So no further files are needed, and the files always match the pages. The server picks a
//! compressed variant that the browser accepts. The ETag is the file's hash, and a browser with a
//! current copy gets 304.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Hash;
use include_dir::{Dir, DirEntry};

#[cfg(feature = "embedded-site")]
fn inside() -> Option<&'static Dir<'static>> {
    static SITE: Dir<'static> = include_dir::include_dir!("$GANTRY_EMBEDDED_SITE");
    Some(&SITE)
}

#[cfg(not(feature = "embedded-site"))]
fn inside() -> Option<&'static Dir<'static>> {
    None
}

/// Compressed variants as file suffixes, best first.
const ENCODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

/// The files, by their path without the leading slash.
#[derive(Debug)]
pub struct EmbeddedFiles(BTreeMap<&'static str, File>);

#[derive(Debug)]
struct File {
    body: &'static [u8],
    tag: HeaderValue,
    kind: HeaderValue,
}

impl EmbeddedFiles {
    /// The embedded site, if the program was built with one.
    pub fn inside() -> Option<Self> {
        inside().map(Self::of)
    }

    fn of(folder: &'static Dir<'static>) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in folder.entries() {
                match entry {
                    DirEntry::Dir(folder) => folders.push(folder),
                    DirEntry::File(file) => {
                        if let Some((path, file)) = read(file) {
                            files.insert(path, file);
                        }
                    }
                }
            }
        }
        Self(files)
    }

    pub(crate) fn content(&self, path: &str) -> Option<&'static [u8]> {
        Some(self.0.get(path)?.body)
    }

    /// The answer for a path; `None` if there is no such file.
    pub(crate) fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Response> {
        let path = path.strip_prefix('/')?;
        let plain = self.0.get(path)?;
        let packed = ENCODINGS.iter().filter(|(coding, _)| accepts(headers, coding));
        let packed = packed
            .filter_map(|(coding, end)| {
                Some((*coding, self.0.get(format!("{path}{end}").as_str())?))
            })
            .next();
        let (coding, file) = packed.map_or((None, plain), |(coding, file)| (Some(coding), file));
        let mut answer = match known(headers, &file.tag) {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false if method == Method::HEAD => {
                ([(header::CONTENT_LENGTH, file.body.len())]).into_response()
            }
            false => file.body.into_response(),
        };
        let headers = answer.headers_mut();
        headers.insert(header::ETAG, file.tag.clone());
        headers.insert(header::CONTENT_TYPE, plain.kind.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Some(coding) = coding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        Some(answer)
    }
}

fn read(file: &'static include_dir::File<'static>) -> Option<(&'static str, File)> {
    let body = file.contents();
    let tag = HeaderValue::from_str(&format!("\"{}\"", Hash::of_bytes(body))).ok()?;
    let kind = mime_guess::from_path(file.path()).first_or_octet_stream();
    let kind = match kind.type_() == mime_guess::mime::TEXT || kind.subtype() == "javascript" {
        true => format!("{kind}; charset=utf-8"),
        false => kind.to_string(),
    };
    Some((file.path().to_str()?, File { body, tag, kind: HeaderValue::from_str(&kind).ok()? }))
}

/// Whether the client accepts an encoding with a weight above 0.
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let all =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let nothing =
            weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse().ok())
                == Some(0.0);
        name.trim().eq_ignore_ascii_case(coding) && !nothing
    })
}

fn known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let all = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one).as_bytes() == tag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use crate::pages::embedded_site::*;

    static FIXTURE: Dir<'static> = include_dir::include_dir!("$CARGO_MANIFEST_DIR/src/tests/site");

    fn ask(path: &str, headers: &[(header::HeaderName, &'static str)]) -> Option<Response> {
        let request_headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        EmbeddedFiles::of(&FIXTURE).answer(&Method::GET, path, &request_headers)
    }

    fn coding(accepted: &'static str) -> Option<String> {
        let answer = ask("/pkg/a.css", &[(header::ACCEPT_ENCODING, accepted)]).expect("it exists");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/css; charset=utf-8");
        answer
            .headers()
            .get(header::CONTENT_ENCODING)
            .map(|value| value.to_str().expect("ASCII text").to_owned())
    }

    #[test]
    fn browser_gets_best_accepted_encoding() {
        assert_eq!(coding("gzip, deflate, br, zstd").as_deref(), Some("br"));
        assert_eq!(coding("gzip;q=0.5, br;q=0").as_deref(), Some("gzip"));
        assert_eq!(coding("deflate"), None);
        let font = ask("/f.woff2", &[(header::ACCEPT_ENCODING, "br")]).expect("it exists");
        assert!(
            !font.headers().contains_key(header::CONTENT_ENCODING),
            "a font has no compressed version"
        );
        assert_eq!(font.headers()[header::CONTENT_TYPE], "font/woff2");
    }

    #[test]
    fn current_etag_returns_304() {
        let first = ask("/pkg/a.css", &[]).expect("it exists");
        let tag: &'static str = Box::leak(
            first.headers()[header::ETAG].to_str().expect("a tag").to_owned().into_boxed_str(),
        );
        let again = ask("/pkg/a.css", &[(header::IF_NONE_MATCH, tag)]).expect("it exists");
        assert_eq!((first.status(), again.status()), (StatusCode::OK, StatusCode::NOT_MODIFIED));
        let packed =
            ask("/pkg/a.css", &[(header::IF_NONE_MATCH, tag), (header::ACCEPT_ENCODING, "br")]);
        assert_eq!(
            packed.expect("it exists").status(),
            StatusCode::OK,
            "each encoding has its own ETag"
        );
    }

    #[test]
    fn unknown_path_has_no_file() {
        for path in
            ["/", "/pkg", "/pkg/", "/../Cargo.toml", "/pkg/b.css", "pkg/a.css", "//pkg/a.css"]
        {
            assert!(ask(path, &[]).is_none(), "{path}");
        }
    }
}
