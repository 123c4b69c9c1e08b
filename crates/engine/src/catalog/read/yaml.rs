//! Parses YAML into a tree with the position of every node.
//!
//! It uses the events of `saphyr-parser` and not a ready-made tree, for four reasons:
//!
//! * It preserves the text of a scalar: a version `2.0` must not become `2`.
//! * It enforces depth and size limits during parsing.
//! * An alias shares its node and is not copied. The cost of a copy is counted, so that a few lines
//!   cannot expand to gigabytes.
//! * A duplicate key is an error with a position. Tree parsers silently keep one of the values.
//!
//! Plain scalars follow YAML 1.2's core schema (`saphyr`): `yes`, `on` and a bare `=` are text.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use saphyr::Scalar;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::Value;

use super::finding::{At, quoted};
use super::{MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_FILE_BYTES};
use crate::data::number::{Fidelity, advice, fidelity};

/// A syntax error or an exceeded limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlError {
    pub(super) at: At,
    pub(super) message: String,
}

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) kind: Kind,
}

/// The kind of a node, with its content.
#[derive(Debug)]
pub(super) enum Kind {
    /// Neither a list nor a map.
    Scalar {
        /// The value in the core schema.
        value: ScalarValue,
        /// The text as in the file, without quotes.
        text: String,
    },
    List(Vec<Rc<Node>>),
    /// Entries in the order of the file. Keys are distinct.
    Map(Vec<Entry>),
}

/// A scalar in the core schema. The node stores the text of strings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ScalarValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: At,
    pub(super) value: Rc<Node>,
}

impl Node {
    /// The kind as a word for messages.
    pub(super) fn sort(&self) -> &'static str {
        match &self.kind {
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
            Kind::Scalar { value, .. } => match value {
                ScalarValue::Null => "nothing",
                ScalarValue::Bool(_) => "true or false",
                ScalarValue::Int(_) | ScalarValue::Float(_) => "a number",
                ScalarValue::Text => "text",
            },
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Scalar { value: ScalarValue::Null, .. })
    }

    /// Converts to JSON. Fails for values that JSON or its canonical form cannot represent.
    pub(super) fn json(&self) -> Result<Value, YamlError> {
        Ok(match &self.kind {
            Kind::List(items) => {
                Value::Array(items.iter().map(|n| n.json()).collect::<Result<_, _>>()?)
            }
            Kind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|entry| Ok((entry.key.clone(), entry.value.json()?)))
                    .collect::<Result<_, _>>()?,
            ),
            Kind::Scalar { value, text } => match value {
                ScalarValue::Null => Value::Null,
                ScalarValue::Bool(truth) => Value::Bool(*truth),
                ScalarValue::Text => Value::String(text.clone()),
                ScalarValue::Int(number) => self.exact(*number, text)?,
                ScalarValue::Float(number) => self.finite(*number, text)?,
            },
        })
    }

    /// Canonical JSON has only doubles. Above 2^53, different integers would become equal.
    fn exact(&self, number: i64, text: &str) -> Result<Value, YamlError> {
        const LARGEST: u64 = (1 << 53) - 1;
        match number.unsigned_abs() <= LARGEST {
            true => Ok(Value::from(number)),
            false => Err(self.yaml_error(format!(
                "The number {} is too large to be stored exactly. Write it as a string in quotes",
                quoted(text)
            ))),
        }
    }

    fn finite(&self, number: f64, text: &str) -> Result<Value, YamlError> {
        if fidelity(text).is_some_and(|found| found > Fidelity::Exact) {
            let message =
                format!("The number {} cannot be stored exactly: {}", quoted(text), advice(text));
            return Err(self.yaml_error(message));
        }
        serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| self.yaml_error(format!("The number {} is not finite", quoted(text))))
    }

    fn yaml_error(&self, message: String) -> YamlError {
        YamlError { at: self.at, message }
    }
}

/// The tree of a file with one document, or `None` if it has no document.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Rc<Node>>, YamlError> {
    Ok(trees(bytes, Builder::default())?.pop())
}

/// The trees of a file that may have several documents.
pub(super) fn parse_all(bytes: &[u8]) -> Result<Vec<Rc<Node>>, YamlError> {
    trees(bytes, Builder { several: true, ..Builder::default() })
}

fn trees(bytes: &[u8], mut builder: Builder) -> Result<Vec<Rc<Node>>, YamlError> {
    let text = decode(bytes)?;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = next(&mut parser, text)? {
        builder.take(event)?;
    }
    Ok(builder.roots)
}

fn next<'t>(
    parser: &mut Parser<'t, StrInput<'t>>,
    text: &str,
) -> Result<Option<(Event<'t>, Span)>, YamlError> {
    match parser.next_event() {
        None => Ok(None),
        Some(Ok(event)) => Ok(Some(event)),
        Some(Err(error)) => {
            let at = position_of(error.marker());
            let mut message = format!("Invalid YAML: {}", error.info());
            if let Some(line) = tab_indented(text, at.line) {
                message = format!(
                    "{message}. Line {line} is indented with a tab, but YAML requires spaces"
                );
            }
            Err(YamlError { at, message })
        }
    }
}

/// The line of an error, or its neighbor, if a tab is in its indentation. A tab is the usual
/// cause, but the parser's message does not mention it.
fn tab_indented(text: &str, line: u32) -> Option<u32> {
    let before = line.saturating_sub(1);
    let lines = text.lines().zip(1..).skip(before.saturating_sub(1) as usize);
    lines
        .take_while(|(_, number)| *number <= line + 1)
        .find(|(content, _)| {
            let indent = content.len() - content.trim_start().len();
            content[..indent].contains('\t')
        })
        .map(|(_, number)| number)
}

fn decode(bytes: &[u8]) -> Result<&str, YamlError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(YamlError {
            at: At::START,
            message: format!(
                "The file has {} bytes, and the limit is {MAX_FILE_BYTES}",
                bytes.len()
            ),
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let line = good.matches('\n').count() + 1;
        let column = good.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        YamlError {
            at: At { line: line as u32, column: column as u32 },
            message: format!(
                "The byte 0x{:02x} is not valid UTF-8. The file must be UTF-8 text",
                bytes[error.valid_up_to()]
            ),
        }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Converts the parser's position: its lines start at 1 and its columns at 0. [`MAX_FILE_BYTES`]
/// bounds both, so no conversion truncates.
fn position_of(marker: &Marker) -> At {
    At { line: marker.line().max(1) as u32, column: marker.col() as u32 + 1 }
}

/// A node and the cost of an alias to it.
#[derive(Clone)]
struct Built {
    node: Rc<Node>,
    /// Nesting levels, including the node itself.
    height: usize,
    /// See [`MAX_EXPANDED_BYTES`].
    weight: usize,
}

/// A list or map that is not closed yet.
struct Frame {
    at: At,
    anchor: usize,
    height: usize,
    weight: usize,
    content: Content,
}

enum Content {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<Entry>, seen: BTreeSet<String>, key: Option<(String, At)> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Frame>,
    anchors: BTreeMap<usize, Built>,
    /// The total weight of the file so far, with aliases expanded.
    spent: usize,
    has_aliases: bool,
    documents: usize,
    /// Whether the file may have several documents.
    several: bool,
    roots: Vec<Rc<Node>>,
}

/// Weight of a node in bytes, in addition to its text.
const NODE: usize = 16;

impl Builder {
    fn take(&mut self, (event, span): (Event<'_>, Span)) -> Result<(), YamlError> {
        let at = position_of(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.document(at),
            Event::Alias(anchor) => self.alias(anchor, at),
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag, at),
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", at)?;
                self.enter(anchor, at, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", at)?;
                let content =
                    Content::Map { entries: Vec::new(), seen: BTreeSet::new(), key: None };
                self.enter(anchor, at, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(at),
        }
    }

    fn document(&mut self, at: At) -> Result<(), YamlError> {
        self.documents += 1;
        match self.documents {
            1 => Ok(()),
            _ if self.several => Ok(()),
            _ => yaml_error(
                at,
                "A second document begins here, but a barclamp file can have only one".into(),
            ),
        }
    }

    fn alias(&mut self, anchor: usize, at: At) -> Result<(), YamlError> {
        let Some(built) = self.anchors.get(&anchor).cloned() else {
            return yaml_error(at, "An alias refers to a value that contains the alias".into());
        };
        self.has_aliases = true;
        self.spend(built.weight, at)?;
        self.attach(built, at)
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<Cow<'_, Tag>>,
        at: At,
    ) -> Result<(), YamlError> {
        let weight = NODE + text.len();
        self.spend(weight, at)?;
        let value = scalar_value(&text, style, tag, at)?;
        let kind = Kind::Scalar { value, text: text.into_owned() };
        let built = Built { node: Rc::new(Node { at, kind }), height: 1, weight };
        self.finish(built, anchor, at)
    }

    fn enter(&mut self, anchor: usize, at: At, content: Content) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return too_deep(at);
        }
        self.spend(NODE, at)?;
        self.open.push(Frame { at, anchor, height: 1, weight: NODE, content });
        Ok(())
    }

    fn leave(&mut self, end: At) -> Result<(), YamlError> {
        let Some(frame) = self.open.pop() else {
            return yaml_error(end, "Unexpected end of a list or map".into());
        };
        let kind = match frame.content {
            Content::List(items) => Kind::List(items),
            Content::Map { entries, .. } => Kind::Map(entries),
        };
        let built = Built {
            node: Rc::new(Node { at: frame.at, kind }),
            height: frame.height,
            weight: frame.weight,
        };
        self.finish(built, frame.anchor, frame.at)
    }

    fn finish(&mut self, built: Built, anchor: usize, at: At) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, built.clone());
        }
        self.attach(built, at)
    }

    /// Adds a finished node to the enclosing list or map.
    fn attach(&mut self, built: Built, at: At) -> Result<(), YamlError> {
        if self.open.len() + built.height > MAX_DEPTH + 1 {
            return too_deep(at);
        }
        let Some(frame) = self.open.last_mut() else {
            self.roots.push(built.node);
            return Ok(());
        };
        frame.height = frame.height.max(built.height + 1);
        frame.weight += built.weight;
        match &mut frame.content {
            Content::List(items) => items.push(built.node),
            Content::Map { entries, seen, key } => match key.take() {
                Some((key, at)) => entries.push(Entry { key, at, value: built.node }),
                None => *key = Some((new_key(&built.node, seen, at)?, at)),
            },
        }
        Ok(())
    }

    fn spend(&mut self, weight: usize, at: At) -> Result<(), YamlError> {
        self.spent = self.spent.saturating_add(weight);
        match self.spent > MAX_EXPANDED_BYTES {
            true if self.has_aliases => yaml_error(
                at,
                format!(
                    "With its aliases expanded, the file has more than {MAX_EXPANDED_BYTES} bytes"
                ),
            ),
            true => yaml_error(
                at,
                format!(
                    "The file has too many values: each counts as its text and {NODE} bytes, and \
                     the limit of their sum is {MAX_EXPANDED_BYTES} bytes. Split the file"
                ),
            ),
            false => Ok(()),
        }
    }
}

fn new_key(node: &Node, seen: &mut BTreeSet<String>, at: At) -> Result<String, YamlError> {
    let Kind::Scalar { text, .. } = &node.kind else {
        return yaml_error(at, format!("A key must be text, not {}", node.sort()));
    };
    if text.is_empty() {
        return yaml_error(at, "A key is empty".into());
    }
    if text == "<<" {
        return yaml_error(
            at,
            "The merge key << is not part of YAML 1.2. Write the keys out, or use an alias for a \
             whole value"
                .into(),
        );
    }
    match seen.insert(text.clone()) {
        true => Ok(text.clone()),
        false => yaml_error(at, format!("Duplicate key {}", quoted(text))),
    }
}

fn scalar_value(
    text: &str,
    style: ScalarStyle,
    tag: Option<Cow<'_, Tag>>,
    at: At,
) -> Result<ScalarValue, YamlError> {
    if let Some(tag) = tag.as_deref()
        && !tag.is_yaml_core_schema()
        && !is_non_specific_tag(tag)
    {
        return unknown_tag(tag, at);
    }
    let value = Scalar::parse_from_cow_and_metadata(Cow::Borrowed(text), style, tag.as_ref());
    match value {
        Some(Scalar::Null) => Ok(ScalarValue::Null),
        Some(Scalar::Boolean(truth)) => Ok(ScalarValue::Bool(truth)),
        Some(Scalar::Integer(number)) => Ok(ScalarValue::Int(number)),
        Some(Scalar::FloatingPoint(number)) => Ok(ScalarValue::Float(number.0)),
        Some(Scalar::String(_)) => Ok(ScalarValue::Text),
        None => yaml_error(at, format!("The value {} does not match its tag", quoted(text))),
    }
}

/// A lone `!`: the parser's representation of "no particular tag".
fn is_non_specific_tag(tag: &Tag) -> bool {
    matches!((tag.handle.as_str(), tag.suffix.as_str()), ("", "!") | ("!", ""))
}

fn check_tag(tag: Option<&Tag>, expected: &str, at: At) -> Result<(), YamlError> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == expected => Ok(()),
        Some(tag) if is_non_specific_tag(tag) => Ok(()),
        Some(tag) => unknown_tag(tag, at),
        None => Ok(()),
    }
}

fn unknown_tag<T>(tag: &Tag, at: At) -> Result<T, YamlError> {
    yaml_error(at, format!("Unsupported tag {}", quoted(&tag.to_string())))
}

fn too_deep<T>(at: At) -> Result<T, YamlError> {
    yaml_error(at, format!("Lists and maps are nested deeper than {MAX_DEPTH} levels"))
}

fn yaml_error<T>(at: At, message: String) -> Result<T, YamlError> {
    Err(YamlError { at, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json_of(text: &str) -> Value {
        parse(text.as_bytes()).unwrap().unwrap().json().unwrap()
    }

    fn complaint(text: &str) -> String {
        let error = match parse(text.as_bytes()) {
            Err(error) => error,
            Ok(tree) => tree.expect("a document").json().unwrap_err(),
        };
        format!("{}:{}: {}", error.at.line, error.at.column, error.message)
    }

    #[test]
    fn scalars_follow_core_schema_and_preserve_text() {
        assert_eq!(
            json_of("[yes, on, =, 0x10, 012, 1e3, ~, null, true, '7', !!str 8, ! 9, '']"),
            json!(["yes", "on", "=", 16, 12, 1000.0, null, null, true, "7", "8", 9, ""])
        );
        let tree = parse(b"2.0").unwrap().unwrap();
        assert!(matches!(&tree.kind, Kind::Scalar { text, .. } if text == "2.0"));
        assert!(parse(b"# nothing\n").unwrap().is_none());
    }

    #[test]
    fn aliases_share_nodes_and_columns_count_characters() {
        assert_eq!(
            json_of("a: &x [1, {b: c}]\nd: *x\n"),
            json!({"a": [1, {"b": "c"}], "d": [1, {"b": "c"}]})
        );
        let tree = parse("é: [ü, {k: v}]".as_bytes()).unwrap().unwrap();
        let Kind::Map(entries) = &tree.kind else { panic!("{tree:?}") };
        assert_eq!(entries[0].at, At { line: 1, column: 1 });
        assert_eq!(entries[0].value.at, At { line: 1, column: 4 });
    }

    #[test]
    fn values_outside_json_are_rejected_with_position() {
        assert_eq!(
            complaint("a:\n  - 9007199254740993\n"),
            "2:5: The number \"9007199254740993\" is too large to be stored exactly. Write it as \
             a string in quotes"
        );
        for changed in
            ["1e-400", "0.10000000000000001", "1e400", "123456789012345678901234", "!!float 1e-400"]
        {
            let text = complaint(&format!("a:\n - {changed}\n"));
            let number = changed.trim_start_matches("!!float ");
            assert!(
                text.starts_with(&format!(
                    "2:4: The number {number:?} cannot be stored exactly: write"
                )),
                "{text}"
            );
        }
        assert_eq!(complaint("a: .inf"), "1:4: The number \".inf\" is not finite");
        assert_eq!(complaint("a: 1\nb: 2\na: 3\n"), "3:1: Duplicate key \"a\"");
        assert_eq!(complaint("? [a]\n: b\n"), "1:3: A key must be text, not a list");
        assert_eq!(complaint("a: !ruby/object {}"), "1:4: Unsupported tag \"!ruby/object\"");
        assert_eq!(
            complaint("a: &x [*x]"),
            "1:8: An alias refers to a value that contains the \
                                             alias"
        );
        assert_eq!(
            complaint("a: 1\n---\nb: 2\n"),
            "2:1: A second document begins here, but a barclamp file can have only one"
        );
        assert!(complaint("b: &b {c: d}\na:\n  <<: *b\n").starts_with("3:3: The merge key"));
    }

    #[test]
    fn depth_limit_includes_aliases() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        let over = complaint(&nested(MAX_DEPTH + 1));
        assert!(over.starts_with(&format!("1:{}: Lists and maps", MAX_DEPTH + 1)));
        complaint(&"[".repeat(MAX_FILE_BYTES));
        complaint(&"- ".repeat(MAX_FILE_BYTES / 2));
        // Each alias adds its own height, so two halves exceed the limit.
        let half = MAX_DEPTH / 2 + 1;
        let text =
            format!("a: &x {}\nb: {}*x{}\n", nested(half), "[".repeat(half), "]".repeat(half));
        assert!(complaint(&text).contains("deeper than"), "{text}");
    }

    #[test]
    fn billion_laughs_is_rejected_cheaply() {
        let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
        for i in 1..12 {
            let before = format!("*a{}", i - 1);
            text += &format!("a{i}: &a{i} [{}]\n", [before.as_str(); 9].join(", "));
        }
        assert!(complaint(&text).contains("With its aliases expanded"));
        // The same with one long text instead of many nodes.
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(900_000), "*a, ".repeat(1000));
        assert!(complaint(&text).contains("With its aliases expanded"));
    }

    #[test]
    fn too_many_values_without_aliases_are_reported() {
        let complaint = complaint(&format!("a: [{}]\n", "1, ".repeat(300_000)));
        assert!(complaint.contains("The file has too many values"), "{complaint}");
    }
}
