//! `docs/field-bugs.md` against the code: what it names exists, and nothing is missing from it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// The faults that were listed: reproduced by a test each, but for those that need what this version does not have.
const COVERED: &[RangeInclusive<u32>] = &[
    1..=9,
    11..=21,
    23..=26,
    29..=31,
    33..=35,
    37..=37,
    39..=42,
    44..=48,
    50..=59,
    65..=65,
    67..=67,
    72..=73,
    77..=77,
    80..=85,
];
const NOT_HERE: &[u32] = &[27, 28, 32, 38, 43, 62, 63, 64, 66];

struct Row {
    tests: Vec<(String, String)>,
    status: String,
}

fn table() -> BTreeMap<u32, Row> {
    let page = fs::read_to_string(root().join("docs/field-bugs.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = cells.split(" | ").collect();
        let [number, what, tests, status] = cells[..] else { panic!("four columns: {line}") };
        let Ok(number) = number.trim().parse() else { continue };
        assert!(!what.is_empty());
        let tests = tests.split('`').skip(1).step_by(2).map(|test| {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("file::test: {test}"));
            (file.to_owned(), name.to_owned())
        });
        let row = Row { tests: tests.collect(), status: status.to_owned() };
        assert!(rows.insert(number, row).is_none(), "{number} is there twice");
    }
    rows
}

fn is_covered(number: u32) -> bool {
    COVERED.iter().any(|range| range.contains(&number))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Whether `file` has a test of this name, not only a function.
fn has_test(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let before = text[..at].trim_end();
    // Attributes stand between, as `#[tokio::test]`, or more of them.
    before
        .lines()
        .rev()
        .take_while(|line| line.trim_start().starts_with(['#', '/']))
        .any(|line| line.contains("test]"))
}

#[test]
fn every_test_that_the_table_names_exists() {
    let mut named = 0;
    for (number, row) in table() {
        for (file, name) in row.tests {
            assert!(has_test(&file, &name), "{number}: {file} has no test {name}");
            named += 1;
        }
    }
    assert!(named > 120, "{named} tests");
}

#[test]
fn every_fault_has_a_row_with_a_status_that_says_what_is_missing() {
    let table = table();
    for number in 1..=85 {
        let Some(row) = table.get(&number) else {
            assert!(!is_covered(number) && !NOT_HERE.contains(&number), "{number} has no row");
            continue;
        };
        let Row { tests, status } = row;
        let (word, rest) = status.split_once(": ").unwrap_or((status, ""));
        if NOT_HERE.contains(&number) {
            assert!(word == "not here" && !rest.is_empty(), "{number}: {status}");
        } else {
            assert!(is_covered(number), "{number} is not of the list");
            assert!(!tests.is_empty() || word == "open", "{number} has no test");
            assert_eq!(word == "covered", rest.is_empty(), "{number}: {status}");
            assert!(matches!(word, "covered" | "partly" | "open"), "{number}: {status}");
        }
    }
}
