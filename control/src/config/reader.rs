//! Reading mappings of the tree: known keys, values of a kind, and every mistake on the way.
//!
//! A reader never stops at a mistake. What could be read comes back, what could not is absent, and the diagnostics say
//! why; an absent value never causes a second message.

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, Diagnostics, Located, Place};
use super::nearest::nearest;
use super::scalar::{self, Fault, Scalar};
use super::tree::{Node, Value};

/// Longer than any value: the longest path that Linux takes. A message quotes values whole.
const VALUE_MAX_BYTES: usize = 4096;
/// Longer than any key or name.
const KEY_MAX_BYTES: usize = 256;

/// The keys of a mapping.
pub struct Schema {
    /// Keys that are read.
    pub known: &'static [&'static str],
    /// Keys of the design that this version does not act on. They are refused: a limit that nothing enforces must not
    /// look as if it were set.
    pub later: &'static [&'static str],
}

/// A key and its value.
#[derive(Clone, Copy)]
pub struct Field<'n> {
    /// The key.
    pub name: &'n str,
    /// Where the key stands.
    pub key: Place,
    /// The value.
    pub node: &'n Node,
}

/// The fields of one mapping that its schema knows.
#[derive(Default)]
pub struct Fields<'n> {
    known: Vec<Field<'n>>,
    /// Keys of later versions, and what unknown keys probably meant: written, in a way, and already reported.
    refused: Vec<&'static str>,
}

/// Collects what is wrong with one entry of the file; every message begins with the entry's name.
pub struct Reader<'d> {
    diagnostics: &'d mut Diagnostics,
    owner: String,
}

impl<'n> Fields<'n> {
    /// The field called `name`, if it was written.
    pub fn get(&self, name: &str) -> Option<Field<'n>> {
        self.known.iter().find(|field| field.name == name).copied()
    }

    /// Whether `name` was not even written in a way that was refused.
    pub fn lacks(&self, name: &str) -> bool {
        self.get(name).is_none() && !self.refused.contains(&name)
    }
}

impl<'d> Reader<'d> {
    /// A reader of the entry called `owner`, as in "port `web1`".
    pub fn new(diagnostics: &'d mut Diagnostics, owner: impl Into<String>) -> Self {
        Self { diagnostics, owner: owner.into() }
    }

    /// A reader of a part of this entry.
    pub fn part(&mut self, name: impl std::fmt::Display) -> Reader<'_> {
        Reader { owner: format!("{}, {name}", self.owner), diagnostics: self.diagnostics }
    }

    /// Reports a mistake.
    pub fn error(&mut self, place: Place, problem: impl std::fmt::Display) -> &mut Diagnostic {
        self.diagnostics.error(place, format!("{}: {problem}", self.owner))
    }

    /// Reports something doubtful.
    pub fn warning(&mut self, place: Place, problem: impl std::fmt::Display) -> &mut Diagnostic {
        self.diagnostics.warning(place, format!("{}: {problem}", self.owner))
    }

    /// Reads a mapping with the keys of `schema`. Unknown keys, keys of later versions and duplicates are reported; of a
    /// duplicate the first one is read.
    pub fn fields<'n>(&mut self, field: Field<'n>, schema: &Schema) -> Option<Fields<'n>> {
        let entries = self.mapping(field)?;
        let mut fields = Fields::default();
        for (key, node) in entries {
            let Some(name) = self.key(key) else { continue };
            let field = Field { name, key: key.place, node };
            if schema.known.contains(&name) {
                match fields.get(name) {
                    Some(first) => self.twice(field, first.key),
                    None => fields.known.push(field),
                }
            } else if let Some(later) = schema.later.iter().find(|later| **later == name) {
                self.later(field);
                fields.refused.push(later);
            } else {
                fields.refused.extend(self.unknown(field, schema));
            }
        }
        Some(fields)
    }

    /// Reads a mapping from names to entries, in the order of the file.
    pub fn entries<'n>(&mut self, field: Field<'n>, noun: &str) -> Vec<(Located<String>, Field<'n>)> {
        if matches!(field.node.value, Value::Empty) {
            self.error(field.key, format!("`{}` is empty", field.name))
                .help(format!("write `{}: {{}}` if there is no {noun}", field.name));
            return Vec::new();
        }
        let mut seen: HashMap<&str, Place> = HashMap::new();
        let mut named = Vec::new();
        for (key, node) in self.mapping(field).unwrap_or_default() {
            let Some(text) = self.key(key) else { continue };
            let field = Field { name: text, key: key.place, node };
            if let Some(first) = seen.insert(text, key.place) {
                self.twice(field, first);
                continue;
            }
            match scalar::name(&Scalar { text: text.to_owned(), quoted: false }) {
                Ok(value) => named.push((Located { value, place: key.place }, field)),
                Err(fault) => self.fault(key.place, fault),
            }
        }
        named
    }

    /// Reads a single value.
    pub fn value<T>(
        &mut self,
        field: Field<'_>,
        parse: impl FnOnce(&Scalar) -> Result<T, Fault>,
    ) -> Option<Located<T>> {
        let place = field.node.place;
        match &field.node.value {
            Value::Scalar(scalar) if scalar.text.len() > VALUE_MAX_BYTES => {
                let bytes = scalar.text.len();
                self.error(field.key, format!("`{}`: its value has {bytes} bytes", field.name))
                    .help(format!("no value is longer than {VALUE_MAX_BYTES}: is a quote missing?"));
                None
            }
            Value::Scalar(scalar) => match parse(scalar) {
                Ok(value) => Some(Located { value, place }),
                Err(Fault { problem, help }) => {
                    let diagnostic = self.error(place, format!("`{}`: {problem}", field.name));
                    diagnostic.help = help;
                    None
                }
            },
            Value::Empty => {
                self.missing_value(field);
                None
            }
            other => {
                self.error(field.key, format!("`{}` takes a single value, not {}", field.name, other.kind()));
                None
            }
        }
    }

    /// Reads a single value or a list of them. An empty list is a mistake.
    pub fn one_or_many<T>(
        &mut self,
        field: Field<'_>,
        parse: impl Fn(&Scalar) -> Result<T, Fault>,
    ) -> Vec<Located<T>> {
        match &field.node.value {
            Value::List(items) if items.is_empty() => {
                self.error(field.key, format!("`{}` is an empty list", field.name)).help("remove the key");
                Vec::new()
            }
            Value::List(items) => items.iter().filter_map(|node| self.item(field, node, &parse)).collect(),
            Value::Mapping(_) => {
                self.error(
                    field.key,
                    format!("`{}` takes a single value or a list, not a mapping", field.name),
                );
                Vec::new()
            }
            _ => self.value(field, &parse).into_iter().collect(),
        }
    }

    /// Reads one entry of a list of single values.
    fn item<T>(
        &mut self,
        field: Field<'_>,
        node: &Node,
        parse: impl FnOnce(&Scalar) -> Result<T, Fault>,
    ) -> Option<Located<T>> {
        match &node.value {
            Value::Scalar(_) => self.value(Field { node, ..field }, parse),
            other => {
                let problem = format!("an entry of `{}` is a single value, not {}", field.name, other.kind());
                self.error(node.place, problem).help("correct the entry or remove it");
                None
            }
        }
    }

    /// Reads a list.
    pub fn list<'n>(&mut self, field: Field<'n>) -> &'n [Node] {
        match &field.node.value {
            Value::List(items) => items,
            Value::Empty => {
                self.missing_value(field);
                &[]
            }
            other => {
                self.error(field.key, format!("`{}` takes a list, not {}", field.name, other.kind()));
                &[]
            }
        }
    }

    /// Reports that this version does not have the key.
    fn later(&mut self, field: Field<'_>) {
        self.error(field.key, format!("this version of Lockgate does not have `{}`", field.name))
            .help("remove the key: nothing would act on it");
    }

    fn mapping<'n>(&mut self, field: Field<'n>) -> Option<&'n [(Node, Node)]> {
        match &field.node.value {
            Value::Mapping(entries) => Some(entries),
            Value::Empty => {
                self.missing_value(field);
                None
            }
            other => {
                self.error(
                    field.key,
                    format!("`{}` takes keys and values, not {}", field.name, other.kind()),
                )
                .help("write `key: value` pairs, in braces or each on a line, without dashes");
                None
            }
        }
    }

    fn missing_value(&mut self, field: Field<'_>) {
        self.error(field.key, format!("`{}` has no value", field.name))
            .help("write one, or `{}` for an entry without settings, or remove the key");
    }

    fn key<'n>(&mut self, key: &'n Node) -> Option<&'n str> {
        match &key.value {
            Value::Scalar(scalar) if scalar.text.len() > KEY_MAX_BYTES => {
                let bytes = scalar.text.len();
                self.error(key.place, format!("this key has {bytes} bytes"))
                    .help(format!("no key is longer than {KEY_MAX_BYTES}: is a quote missing?"));
                None
            }
            Value::Scalar(scalar) => Some(&scalar.text),
            other => {
                self.error(key.place, format!("a key must be a name, not {}", other.kind()))
                    .help("write the name before the colon; quote it if it is a word such as `null`");
                None
            }
        }
    }

    fn twice(&mut self, field: Field<'_>, first: Place) {
        self.error(field.key, format!("`{}` is written twice", field.name))
            .label("again here")
            .related(first, "first here")
            .help("keep one of them");
    }

    /// Reports an unknown key and answers with what was probably meant.
    fn unknown(&mut self, field: Field<'_>, schema: &Schema) -> Option<&'static str> {
        let meant = nearest(field.name, schema.known.iter().copied());
        self.error(field.key, format!("there is no key `{}` here", field.name)).help = Some(match meant {
            Some(meant) => format!("perhaps `{meant}` was meant"),
            None => format!("the keys are {}", schema.known.join(", ")),
        });
        meant
    }

    fn fault(&mut self, place: Place, fault: Fault) {
        self.error(place, fault.problem).help = fault.help;
    }
}
