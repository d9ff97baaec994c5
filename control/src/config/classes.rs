//! `classes:` traffic classes and the frames that belong to them.
//!
//! Strict classes come first, in the order of the file, then the weighted ones: the position is the rank. The class
//! `best_effort` always exists and takes every frame that no rule matches.

use std::num::NonZeroU8;

use lockgate_dataplane::id::ClassId;
use lockgate_dataplane::state::{Class, ClassTable, MAX_CLASSES, Service};

use super::diagnostic::{Diagnostics, Located, Place};
use super::reader::{Field, Fields, Reader, Schema};
use super::scalar::{self, Fault, Scalar};
use super::tree::{Node, Value};

const BEST_EFFORT: &str = "best_effort";
const MAX_WEIGHT: u64 = 255;
const DEFAULT_WEIGHT: NonZeroU8 = NonZeroU8::MIN;

const CLASS: Schema =
    Schema { known: &["match", "strict", "weight"], later: &["limit", "reservation", "shares"] };
const RULE: Schema =
    Schema { known: &["dscp", "pcp"], later: &["protocol", "port", "source", "destination"] };

/// The classes of the file with what belongs to them.
#[derive(Clone, Debug)]
pub struct ClassesConfig {
    classes: Vec<ClassConfig>,
}

#[derive(Clone, Debug)]
struct ClassConfig {
    name: String,
    service: Service,
    dscps: Vec<Located<u8>>,
    pcps: Vec<Located<u8>>,
}

impl Default for ClassesConfig {
    fn default() -> Self {
        Self { classes: vec![ClassConfig::best_effort()] }
    }
}

impl ClassesConfig {
    /// Reads `classes:`.
    pub fn read(diagnostics: &mut Diagnostics, field: Field<'_>) -> Self {
        let entries = Reader::new(diagnostics, "classes").entries(field, "class");
        let mut classes = Vec::new();
        for (name, field) in entries {
            let mut reader = Reader::new(diagnostics, format!("class `{}`", name.value));
            let class = ClassConfig::read(&mut reader, name.value, field);
            if classes.len() == MAX_CLASSES {
                reader
                    .error(name.place, format!("there are more than {MAX_CLASSES} classes"))
                    .help(format!("`{BEST_EFFORT}` counts, written or not"));
            }
            classes.push(class);
        }
        if !classes.iter().any(|class| class.name == BEST_EFFORT) {
            if classes.len() == MAX_CLASSES {
                Reader::new(diagnostics, "classes")
                    .error(field.key, format!("{MAX_CLASSES} classes leave no room for `{BEST_EFFORT}`"))
                    .help("it takes every frame that no rule matches, and always exists: remove one class");
            }
            classes.push(ClassConfig::best_effort());
        }
        // Stable: within each kind the order of the file is the rank.
        classes.sort_by_key(|class| class.service != Service::Strict);
        classes.truncate(MAX_CLASSES);
        let config = Self { classes };
        config.check_rules(diagnostics);
        config
    }

    /// Names by rank, and the table that the classifier reads.
    pub fn resolve(&self) -> (Vec<String>, ClassTable) {
        let mut table = ClassTable {
            classes: self.classes.iter().map(|class| Class { service: class.service }).collect(),
            ..ClassTable::default()
        };
        for (rank, class) in (0..).map(ClassId).zip(&self.classes) {
            class.dscps.iter().for_each(|dscp| table.by_dscp[usize::from(dscp.value)] = Some(rank));
            class.pcps.iter().for_each(|pcp| table.by_pcp[usize::from(pcp.value)] = Some(rank));
            if class.name == BEST_EFFORT {
                table.default = rank;
            }
        }
        (self.classes.iter().map(|class| class.name.clone()).collect(), table)
    }

    /// Each code point belongs to one class.
    fn check_rules(&self, diagnostics: &mut Diagnostics) {
        let mut owners: Vec<(&str, u8, &str, Place)> = Vec::new();
        for class in &self.classes {
            let dscps = class.dscps.iter().map(|value| ("dscp", value));
            let pcps = class.pcps.iter().map(|value| ("pcp", value));
            for (kind, Located { value, place }) in dscps.chain(pcps) {
                if let Some((_, _, owner, first)) =
                    owners.iter().find(|(k, v, ..)| (*k, *v) == (kind, *value))
                {
                    Reader::new(diagnostics, format!("class `{}`", class.name))
                        .error(*place, format!("{kind} {value} already belongs to class `{owner}`"))
                        .label("again here")
                        .related(*first, "first here")
                        .help("a frame has one class: keep one of the rules");
                } else {
                    owners.push((kind, *value, &class.name, *place));
                }
            }
        }
    }
}

impl ClassConfig {
    fn best_effort() -> Self {
        let service = Service::Weighted { weight: DEFAULT_WEIGHT };
        Self { name: BEST_EFFORT.to_owned(), service, dscps: Vec::new(), pcps: Vec::new() }
    }

    fn read(reader: &mut Reader<'_>, name: String, field: Field<'_>) -> Self {
        let mut class = Self { name, ..Self::best_effort() };
        let Some(fields) = reader.fields(field, &CLASS) else { return class };
        class.service = class.read_service(reader, &fields);
        match fields.get("match") {
            Some(rules) => class.read_rules(reader, rules),
            None if class.name != BEST_EFFORT => {
                reader
                    .warning(field.key, "no frame enters this class: it has no `match`")
                    .help("add rules, such as `match: [{ dscp: ef }]`, or remove the class");
            }
            None => {}
        }
        class
    }

    fn read_service(&self, reader: &mut Reader<'_>, fields: &Fields<'_>) -> Service {
        let strict = fields.get("strict").and_then(|field| reader.value(field, scalar::boolean));
        let weight =
            fields.get("weight").and_then(|field| reader.value(field, scalar::integer(1..=MAX_WEIGHT)));
        match strict.filter(|strict| strict.value) {
            Some(strict) if self.name == BEST_EFFORT => {
                reader
                    .error(strict.place, "it cannot be strict: every frame that no rule matches is in it")
                    .help("make the classes strict that must come before it");
                Service::Strict
            }
            Some(strict) => {
                if let Some(weight) = weight {
                    reader
                        .error(weight.place, "`strict` and `weight` contradict each other")
                        .related(strict.place, "strict")
                        .help("a strict class is served first; a weight shares what strict classes leave");
                }
                Service::Strict
            }
            None => Service::Weighted {
                weight: weight.and_then(|weight| NonZeroU8::new(weight.value)).unwrap_or(DEFAULT_WEIGHT),
            },
        }
    }

    fn read_rules(&mut self, reader: &mut Reader<'_>, rules: Field<'_>) {
        if matches!(&rules.node.value, Value::List(items) if items.is_empty()) {
            reader
                .error(rules.key, "`match` is an empty list: no frame enters this class")
                .help("add rules, such as `match: [{ dscp: ef }]`, or remove the class");
        }
        reader.list(rules).iter().for_each(|rule| self.read_rule(reader, rules, rule));
    }

    fn read_rule(&mut self, reader: &mut Reader<'_>, rules: Field<'_>, rule: &Node) {
        let Some(fields) = reader.fields(Field { node: rule, ..rules }, &RULE) else { return };
        if let (Some(_), Some(pcp)) = (fields.get("dscp"), fields.get("pcp")) {
            reader.error(pcp.key, "a rule matches one field").help(
                "write two rules, `{ dscp: … }, { pcp: … }`: a frame that matches either is in the class",
            );
        }
        if matches!(&rule.value, Value::Mapping(entries) if entries.is_empty()) {
            reader
                .error(rule.place, "a rule without a field matches nothing")
                .help("write one, such as `{ dscp: ef }` or `{ pcp: 5 }`, or remove the rule");
        }
        if let Some(field) = fields.get("dscp") {
            self.dscps.extend(reader.one_or_many(field, dscp));
        }
        if let Some(field) = fields.get("pcp") {
            self.pcps.extend(reader.one_or_many(field, pcp));
        }
    }
}

/// Reads a code point, as a number or by its name.
fn dscp(scalar: &Scalar) -> Result<u8, Fault> {
    let help = "write 0 to 63, or a name: ef, va, le, be, cs0 to cs7, af11 to af43";
    match named_code_point(&scalar.text) {
        Some(code_point) => Ok(code_point),
        None => scalar::integer(0..=63)(scalar).map_err(|fault| fault.help(help)),
    }
}

/// RFC 2474 (class selectors), 2597 (assured forwarding), 3246 (expedited), 5865 (voice admit), 8622 (lower effort).
fn named_code_point(name: &str) -> Option<u8> {
    match *name.as_bytes() {
        [b'b', b'e'] => Some(0),
        [b'l', b'e'] => Some(1),
        [b'v', b'a'] => Some(44),
        [b'e', b'f'] => Some(46),
        [b'c', b's', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        [b'a', b'f', class @ b'1'..=b'4', precedence @ b'1'..=b'3'] => {
            Some((class - b'0') << 3 | (precedence - b'0') << 1)
        }
        _ => None,
    }
}

/// Reads a priority code point.
fn pcp(scalar: &Scalar) -> Result<u8, Fault> {
    scalar::integer(0..=7)(scalar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_code_points_follow_their_rfcs() {
        let code = |text: &str| dscp(&Scalar { text: text.to_owned(), quoted: false });
        for (name, code_point) in [
            ("be", 0),
            ("le", 1),
            ("cs0", 0),
            ("cs1", 8),
            ("af11", 10),
            ("af13", 14),
            ("af22", 20),
            ("af31", 26),
            ("cs5", 40),
            ("af43", 38),
            ("va", 44),
            ("ef", 46),
            ("cs7", 56),
            ("46", 46),
        ] {
            assert_eq!(code(name), Ok(code_point), "{name}");
        }
        assert!(code("64").is_err() && code("af14").is_err() && code("cs8").is_err() && code("EF").is_err());
    }
}
