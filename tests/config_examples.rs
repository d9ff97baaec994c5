//! The files under `configs/`: the good ones load without a word, the invalid ones are refused with exactly the messages
//! their first lines announce, at exactly the places. Damaged copies of the good ones never bring the reader down.

use std::fs;
use std::path::{Path, PathBuf};

use lockgate_control::compile::compile;
use lockgate_control::config::diagnostic::{Diagnostic, Severity};
use lockgate_control::config::{self, Loaded};
use lockgate_tests::fuzz;
use proptest::prelude::*;

/// `configs/` beside the package that holds this test, or `configs/<folder>`.
fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(folder);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// Pairs of `# expect: text` and `# at: line:column` from the head of an invalid file.
fn expectations(text: &str) -> Vec<(String, (usize, usize))> {
    let after = |prefix: &'static str| text.lines().filter_map(move |line| line.strip_prefix(prefix));
    let position = |at: &str| {
        let (line, column) = at.split_once(':').expect("line:column");
        (line.parse().unwrap(), column.parse().unwrap())
    };
    let (messages, places) = (after("# expect: "), after("# at: "));
    assert_eq!(messages.clone().count(), places.clone().count(), "each expectation has a place");
    messages.map(str::to_owned).zip(places.map(position)).collect()
}

#[test]
fn every_example_loads_and_compiles_without_warnings() {
    let files = yaml_files("");
    assert!(files.len() >= 12, "only {} examples", files.len());
    for path in files {
        let Loaded { topology, warnings, .. } =
            config::load(&path).unwrap_or_else(|report| panic!("{report}"));
        assert!(warnings.is_empty(), "{warnings}");
        assert_eq!(compile(&topology, &[], 2).ports.len(), topology.ports.len());
    }
}

#[test]
fn every_invalid_file_is_refused_with_all_its_mistakes_at_their_places() {
    let (mut single, mut several) = (0, 0);
    for path in yaml_files("invalid") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = expectations(&fs::read_to_string(&path).unwrap());
        let report = config::load(&path).err().unwrap_or_else(|| panic!("{name} loads"));
        assert_eq!(report.diagnostics().len(), expected.len(), "{name}\n{report}");
        for (diagnostic, (message, at)) in report.diagnostics().iter().zip(&expected) {
            assert_eq!(diagnostic.severity, Severity::Error, "{name}: {}", diagnostic.message);
            assert!(
                diagnostic.message.contains(message),
                "{name}: expected {message:?}, found {:?}",
                diagnostic.message
            );
            assert_eq!(report.position(diagnostic), Some(*at), "{name}: {}", diagnostic.message);
            assert!(shows_a_way_out(diagnostic), "{name}: no way out: {}", diagnostic.message);
        }
        match expected.len() {
            1 => single += 1,
            2 => {}
            _ => several += 1,
        }
    }
    assert!(single >= 180 && several >= 6, "{single} files with one mistake, {several} with several");
}

/// In its help, or in a message that says itself what is taken.
fn shows_a_way_out(diagnostic: &Diagnostic) -> bool {
    let in_the_message = ["out of range: ", " takes ", "the units are ", "is not one of ", ": write "];
    diagnostic.help.is_some() || in_the_message.iter().any(|part| diagnostic.message.contains(part))
}

#[test]
fn a_rendered_report_shows_the_line_the_place_and_the_way_out() {
    let text =
        "version: 1\nport_groups: { web: { vlan: 10 } }\nports:\n  a: { group: wbe, netdev: veth-a }\n";
    let report = config::parse("sw.yaml", text).unwrap_err();
    let expected = "  × port `a`: there is no port group `wbe`
   ╭─[sw.yaml:4:15]
 4 │   a: { group: wbe, netdev: veth-a }
   ·               ───
   ╰────
  help: perhaps `web` was meant

sw.yaml: 1 error
";
    assert_eq!(report.render(false), expected);
}

#[test]
fn a_terminal_gets_colours_and_a_file_does_not() {
    let report = config::parse("sw.yaml", "version: 2\nports: {}\n").unwrap_err();
    assert!(report.render(true).contains('\u{1b}'));
    assert!(!report.render(false).contains('\u{1b}'));
}

#[test]
fn doubtful_values_are_taken_with_a_warning() {
    let text = "
version: 1
switch: { workers: 4 }
classes: { voice: { strict: true } }
port_groups:
  web: { shaping: { port: { ingress: { average: 1 Gbit/s, burst: 64 KiB }, egress: { average: 1 Mbit/s, peak: 1 Mbit/s, burst: 1 MiB } } } }
ports:
  a: { group: web, tap: { netns: a, interface: eth0, address: 10.0.0.1/24, mtu: 9000 } }
  b: { group: web, tap: { netns: b, interface: eth0, address: 10.0.0.1/24 } }
";
    let warnings = config::parse("sw.yaml", text).unwrap().warnings;
    let messages: Vec<_> = warnings.diagnostics().iter().map(|warning| warning.message.as_str()).collect();
    let expected = [
        "switch: 4 workers for 2 ports",
        "class `voice`: no frame enters this class: it has no `match`",
        "port group `web`, shaping, ingress (port → switch): `burst` 64 KiB is less than 10 ms of `average`",
        "port group `web`, shaping, egress (switch → port): `burst` 1 MiB is more than a second of `average`",
        "port group `web`: its ports have different MTUs, 1500 and 9000",
        "port `b`: 10.0.0.1 is already an address of port `a`",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn line_ends_and_byte_order_mark_of_other_systems_are_taken() {
    let text = fs::read_to_string(&yaml_files("")[0]).unwrap();
    let foreign = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert!(config::parse("foreign.yaml", &foreign).is_ok());
    let report = config::parse("foreign.yaml", "\u{feff}version: 1\r\nports: 7\r\n").unwrap_err();
    assert_eq!(report.position(&report.diagnostics()[0]), Some((2, 1)));
}

#[test]
fn the_hash_follows_the_text() {
    let hash = |text: &str| config::parse("sw.yaml", text).unwrap().hash;
    assert_eq!(hash("version: 1\nports: {}\n"), hash("version: 1\nports: {}\n"));
    assert_ne!(hash("version: 1\nports: {}\n"), hash("version: 1\nports: {} \n"));
}

/// What may happen to a file between two people.
#[derive(Clone, Debug)]
enum Damage {
    DeleteChar(usize),
    DuplicateChar(usize),
    ReplaceChar(usize, char),
    DeleteLine(usize),
    DuplicateLine(usize),
    SwapLines(usize, usize),
}

impl Damage {
    fn apply(&self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (char_at, line_at) =
            (|at: usize| at % text.chars().count(), |at: usize| at % text.lines().count());
        match *self {
            Self::DeleteChar(at) => drop(chars.remove(char_at(at))),
            Self::DuplicateChar(at) => chars.insert(char_at(at), chars[char_at(at)]),
            Self::ReplaceChar(at, with) => chars[char_at(at)] = with,
            Self::DeleteLine(at) => drop(lines.remove(line_at(at))),
            Self::DuplicateLine(at) => lines.insert(line_at(at), lines[line_at(at)]),
            Self::SwapLines(a, b) => lines.swap(line_at(a), line_at(b)),
        }
        match self {
            Self::DeleteChar(_) | Self::DuplicateChar(_) | Self::ReplaceChar(..) => {
                chars.into_iter().collect()
            }
            Self::DeleteLine(_) | Self::DuplicateLine(_) | Self::SwapLines(..) => lines.concat(),
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<usize>;
    let with = prop_oneof![
        proptest::sample::select("{}[]:,#&*!|>'\"%@`-~?<= \t\n\r\0.0é\u{feff}".chars().collect::<Vec<_>>()),
        any::<char>(),
    ];
    prop_oneof![
        at().prop_map(Damage::DeleteChar),
        at().prop_map(Damage::DuplicateChar),
        (at(), with).prop_map(|(at, with)| Damage::ReplaceChar(at, with)),
        at().prop_map(Damage::DeleteLine),
        at().prop_map(Damage::DuplicateLine),
        (at(), at()).prop_map(|(a, b)| Damage::SwapLines(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_loads_or_is_refused_with_places(
        file in proptest::sample::select(yaml_files("")),
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let good = fs::read_to_string(&file).unwrap();
        let text = damages.iter().fold(good, |text, damage| if text.is_empty() { text } else { damage.apply(&text) });
        fuzz::config::check(&text);
    }

    #[test]
    fn any_text_is_read_or_refused_with_places(text in "(\\PC|[\\n:{}\\[\\],&*#' -]){0,80}") {
        fuzz::config::check(&text);
    }
}
