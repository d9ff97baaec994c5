//! The topology file: YAML in, [`Topology`] or every mistake out.
//!
//! ```text
//! text ─ tree ─ reader, units, scalar ─ settings, classes, groups, ports ─ resolve, unique ─ Topology
//!        YAML   values with their place  …Config: what was written          the whole file
//! ```
//!
//! The file is read entry by entry: a mistake in one port, group or class hides none of the others, and one run reports
//! them all with file, line, column and the offending text. Only text that is not YAML ends the reading early.
//!
//! What the file may leave out, and what it then means:
//!
//! | key | default |
//! |---|---|
//! | `switch.name`, `workers` | `sw0`, `auto` |
//! | `switch.mac_table` | `size: 8192`, `age: 300 s` |
//! | `metrics.listen`, `api.socket` | `127.0.0.1:9478`, `/run/lockgate/lockgate.sock` |
//! | `classes` | one, `best_effort`, which always exists |
//! | `vlan` and `trunk` of a group | untagged |
//! | `native` of a trunk | none: untagged frames are refused. A native VLAN passes whether the list has it or not |
//! | `learn` | addresses are pinned; `true` means 64, and frames from further addresses are dropped |
//! | `promiscuous`, `mac_changes`, `forged_transmits` | `reject` |
//! | `storm`, `bpdu_guard` | no limit, `false` |
//! | `link_local` | nothing is forwarded |
//! | `burst` | 10 ms of `average`, at least 64 KiB and one frame |
//! | `max_delay`, `overhead` | `20 ms`, `0 B` |
//! | `peak` | none, as if it were `average`: a burst leaves at line rate |
//! | `mtu` | 1500 |
//! | `mac` of a veth or tap interface | the first of the port's `mac`, else the kernel's choice |
//!
//! A port's `shaping`, `learn` and what is about security override its group's, each direction of shaping and each key of
//! security on its own. A group's `learn` does not
//! reach ports that list their addresses, nor internal ones. Keys that begin with `x-` at the top hold YAML anchors.

pub mod classes;
pub mod diagnostic;
pub mod groups;
pub mod interface;
mod nearest;
pub mod ports;
pub mod reader;
mod render;
pub mod resolve;
pub mod scalar;
pub mod security;
pub mod settings;
pub mod shaping;
mod syntax;
pub mod tree;
mod unique;
pub mod units;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use self::classes::ClassesConfig;
use self::diagnostic::{Diagnostic, Diagnostics, Place, Report, Span};
use self::reader::{Field, Reader, Schema};
use self::resolve::TopologyConfig;
use self::tree::{Node, Value};
use crate::topology::Topology;

/// Larger than any topology; keeps a device or a log given by mistake from filling the memory.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The version of the file's shape.
const VERSION: u64 = 1;
/// Ports and groups are numbered with 16 bits; tables per port make more than this useless on one host.
const MAX_ENTRIES: usize = 4096;

const FILE: Schema = Schema {
    known: &["version", "switch", "metrics", "api", "classes", "port_groups", "ports"],
    later: &["uplinks", "mirrors"],
};

/// A file that was taken.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub topology: Topology,
    /// What is doubtful about it.
    pub warnings: Report,
    /// Fingerprint of its text, 16 hexadecimal digits (FNV-1a).
    pub hash: String,
}

/// Reads the file at `path`.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| Report::unreadable(path, &error))?;
    let file_name = path.display().to_string();
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let problem =
            format!("{file_name} is larger than {} MiB: that is not a topology", MAX_FILE_BYTES >> 20);
        return Err(Report::single(&file_name, "", Diagnostic::without_place(problem)));
    }
    let text = String::from_utf8(bytes).map_err(|error| not_utf8(&file_name, &error))?;
    parse(&file_name, &text)
}

/// Reads `text`, calling it `file_name` in what is reported.
pub fn parse(file_name: &str, text: &str) -> Result<Loaded, Report> {
    let source = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = tree::parse(source).map_err(|diagnostic| Report::single(file_name, source, *diagnostic))?;
    let mut diagnostics = Diagnostics::default();
    let config = read_file(&mut diagnostics, &root);
    let topology = config.resolve(&mut diagnostics);
    let refused = diagnostics.has_errors();
    let report = diagnostics.into_report(file_name, source);
    if refused { Err(report) } else { Ok(Loaded { topology, warnings: report, hash: fingerprint(text) }) }
}

fn read_file(diagnostics: &mut Diagnostics, root: &Node) -> TopologyConfig {
    let mut config = TopologyConfig::default();
    let start = Place { span: Span { end: root.place.span.start, ..root.place.span }, used_at: None };
    let mut reader = Reader::new(diagnostics, "topology");
    let entries = match &root.value {
        Value::Mapping(entries) => entries,
        other => {
            reader
                .error(start, format!("the file holds {}, not a topology", other.kind()))
                .help("begin with `version: 1` and `ports:`");
            return config;
        }
    };
    // `x-` keys only hold anchors for other places; what is wrong there is reported where it is used.
    let is_read =
        |(key, _): &&(Node, Node)| !matches!(&key.value, Value::Scalar(key) if key.text.starts_with("x-"));
    let read: Vec<_> = entries.iter().filter(is_read).cloned().collect();
    let whole = Node { value: Value::Mapping(read), place: start };
    let Some(fields) = reader.fields(Field { name: "topology", key: start, node: &whole }, &FILE) else {
        return config;
    };

    match fields.get("version") {
        Some(version) => read_version(&mut reader, version),
        None if fields.lacks("version") => {
            reader
                .error(start, "there is no `version`")
                .help(format!("begin the file with `version: {VERSION}`"));
        }
        None => {}
    }
    if fields.lacks("ports") {
        reader.error(start, "there is no `ports`").help("write `ports: {}` for a switch without any");
    }
    if let Some(field) = fields.get("switch") {
        config.settings.read_switch(diagnostics, field);
    }
    if let Some(field) = fields.get("metrics") {
        config.settings.read_metrics(diagnostics, field);
    }
    if let Some(field) = fields.get("api") {
        config.settings.read_api(diagnostics, field);
    }
    if let Some(field) = fields.get("classes") {
        config.classes = ClassesConfig::read(diagnostics, field);
    }
    if let Some(field) = fields.get("port_groups") {
        config.groups = groups::read_groups(diagnostics, field);
        bound(diagnostics, field, &mut config.groups);
    }
    if let Some(field) = fields.get("ports") {
        config.ports = ports::read_ports(diagnostics, field);
        bound(diagnostics, field, &mut config.ports);
    }
    config
}

fn read_version(reader: &mut Reader<'_>, field: Field<'_>) {
    let way_out = format!("it reads version {VERSION}");
    let version = reader.value(field, |scalar| {
        scalar::integer::<u64>(0..=u64::MAX)(scalar).map_err(|fault| fault.help(way_out.as_str()))
    });
    if let Some(version) = version.filter(|version| version.value != VERSION) {
        reader
            .error(version.place, format!("`version` {} is not one that this program reads", version.value))
            .help(way_out);
    }
}

/// Refuses more entries than there are numbers for, and leaves no more than that for the checks that number them.
fn bound<T>(diagnostics: &mut Diagnostics, field: Field<'_>, entries: &mut Vec<T>) {
    if entries.len() > MAX_ENTRIES {
        Reader::new(diagnostics, field.name)
            .error(field.key, format!("there are {} entries", entries.len()))
            .help(format!("a switch has at most {MAX_ENTRIES}"));
        entries.truncate(MAX_ENTRIES);
    }
}

fn not_utf8(file_name: &str, error: &std::string::FromUtf8Error) -> Report {
    let valid = error.utf8_error().valid_up_to();
    let source = String::from_utf8_lossy(error.as_bytes());
    let bad = Span { start: valid, end: valid + char::REPLACEMENT_CHARACTER.len_utf8() };
    let mut diagnostic = Diagnostic::error(bad.into(), format!("byte {valid} of {file_name} is not UTF-8"));
    diagnostic.help("save the file as UTF-8");
    Report::single(file_name, &source, diagnostic)
}

/// FNV-1a with 64 bits: tells two texts apart, and is the same on every machine and in every version.
fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_fnv_1a() {
        assert_eq!(fingerprint(""), "cbf29ce484222325");
        assert_eq!(fingerprint("foobar"), "85944171f73967e8");
    }

    #[test]
    fn more_entries_than_there_are_numbers_for_are_refused() {
        let entries = |number: usize, entry: &str| {
            (0..number).map(|n| format!("  n{n}: {entry}\n")).collect::<String>()
        };
        let groups = format!("version: 1\nport_groups:\n{}ports: {{}}\n", entries(70_000, "{}"));
        let report = parse("groups.yaml", &groups).unwrap_err();
        assert!(report.diagnostics()[0].message.contains("there are 70000 entries"), "{report}");
        let classes = format!("version: 1\nclasses:\n{}ports: {{}}\n", entries(300, "{ weight: 2 }"));
        let report = parse("classes.yaml", &classes).unwrap_err();
        assert_eq!(report.count(diagnostic::Severity::Error), 1, "{report}");
    }
}
