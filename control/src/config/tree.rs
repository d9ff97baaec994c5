//! The YAML file as a tree in which every scalar keeps the text it was written with.
//!
//! serde-saphyr parses, follows aliases and merges, bounds depth and size, and says where each node stands. It also
//! decides what type a plain scalar has, which loses what the user wrote: `0100` arrives as a float, `no` as a boolean.
//! So a plain scalar's text is cut out of the source again; the readers decide what it means, and can quote it in their
//! messages. Duplicate keys are passed through for the same reason: the reader of a mapping reports both lines.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, NonFiniteFloatPolicy, Spanned};

use super::diagnostic::{Diagnostic, Place, Span};
use super::syntax;

/// A value of the file.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it stands. For a block mapping or list this is its first entry, so messages about one point at its key.
    pub place: Place,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing at all: `~`, `null`, or no text.
    Empty,
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// Keys and values in the order of the file, duplicates included.
    Mapping(Vec<(Node, Node)>),
}

/// A single value, not yet interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text: as written if plain, unescaped if quoted.
    pub text: String,
    /// Whether it stood in quotes.
    pub quoted: bool,
}

impl Value {
    /// What this is, for "expected …, found …".
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }
}

/// Events, about one for each key or value, that aliases may stand for in all: 25 for each port there can be. A few lines
/// of aliases of aliases can stand for millions.
const REPLAYED_EVENTS_MAX: usize = 100_000;

/// Parses `source`, one YAML document.
pub fn parse(source: &str) -> Result<Node, Box<Diagnostic>> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_EVENTS_MAX },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Spanned<Raw>>(source, options)
        .map(|root| build(root, source))
        .map_err(|error| Box::new(syntax::diagnostic(&error, source)))
}

/// A node as the parser reports it: typed scalars, places apart.
enum Raw {
    Empty,
    Text(String),
    /// A plain scalar that YAML gives another type; its text is in the source.
    Typed,
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

fn build(node: Spanned<Raw>, source: &str) -> Node {
    let span = span_of(node.defined);
    let used_at = Some(span_of(node.referenced)).filter(|used_at| *used_at != span);
    let written = source.get(span.start..span.end).unwrap_or_default();
    let value = match node.value {
        Raw::Empty => Value::Empty,
        Raw::Text(text) => Value::Scalar(Scalar { text, quoted: written.starts_with(['"', '\'']) }),
        Raw::Typed => Value::Scalar(Scalar { text: written.to_owned(), quoted: false }),
        Raw::List(items) => Value::List(items.into_iter().map(|item| build(item, source)).collect()),
        Raw::Mapping(entries) => Value::Mapping(
            entries.into_iter().map(|(key, value)| (build(key, source), build(value, source))).collect(),
        ),
    };
    Node { value, place: Place { span, used_at } }
}

/// Bytes of a location; text input always has them.
fn span_of(location: Location) -> Span {
    let span = location.span();
    let byte =
        |offset: Option<u64>| offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or_default();
    let start = byte(span.byte_offset());
    Span { start, end: start + byte(span.byte_len()) }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Empty)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Raw::Mapping(mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(source: &str) -> Vec<(Value, Place)> {
        let Value::Mapping(entries) = parse(source).unwrap().value else { panic!("{source} is a mapping") };
        entries.into_iter().map(|(_, node)| (node.value, node.place)).collect()
    }

    #[test]
    fn scalars_keep_the_text_and_the_quotes_they_were_written_with() {
        let source = "{a: 0100, b: 1e3, c: no, d: 52:54:00:12:34:56, e: \"x\\ty\", f: 'no', g: .nan, h: 99999999999999999999}";
        let scalars: Vec<_> = values(source)
            .into_iter()
            .map(|(value, _)| match value {
                Value::Scalar(Scalar { text, quoted }) => (text, quoted),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ("0100", false),
            ("1e3", false),
            ("no", false),
            ("52:54:00:12:34:56", false),
            ("x\ty", true),
            ("no", true),
            (".nan", false),
            ("99999999999999999999", false),
        ];
        assert_eq!(scalars, expected.map(|(text, quoted)| (text.to_owned(), quoted)));
    }

    #[test]
    fn an_alias_knows_its_definition_and_its_use() {
        let source = "x-s: &s 5 ms\na: *s\n";
        let (_, place) = values(source).remove(1);
        assert_eq!(&source[place.span.start..place.span.end], "5 ms");
        assert_eq!(place.used_at.map(|span| span.start), Some(source.find("*s").unwrap()));
    }

    #[test]
    fn duplicate_keys_reach_the_reader_and_merged_ones_do_not_count() {
        assert_eq!(values("{a: 1, a: 2}").len(), 2);
        assert!(
            matches!(&values("x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}")[1].0, Value::Mapping(entries) if entries.len() == 2)
        );
    }

    #[test]
    fn what_is_not_yaml_is_refused_with_a_place() {
        for (source, start) in
            [("a: [1", 3), ("a: b: c", 4), ("a: 1\n---\nb: 2", 9), ("a: *nope", 3), ("a: !!binary x", 12)]
        {
            let error = parse(source).unwrap_err();
            assert_eq!(error.place.map(|place| place.span.start), Some(start), "{source}: {}", error.message);
        }
    }

    #[test]
    fn deep_nesting_is_refused_rather_than_overflowing_the_stack() {
        let deep = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&deep).is_err());
    }
}
