//! Any text as a topology file.

use lockgate_control::compile::compile;
use lockgate_control::config;
use lockgate_control::config::diagnostic::{Report, Severity};

/// `text` is taken and compiles, or is refused with places within it. Answers whether it was taken.
pub fn check(text: &str) -> bool {
    match config::parse("fuzzed.yaml", text) {
        Ok(loaded) => {
            let topology = &loaded.topology;
            assert_eq!(compile(topology, &[], 2).ports.len(), topology.ports.len(), "every port is compiled");
            check_places(&loaded.warnings, text);
            true
        }
        Err(report) => {
            assert!(report.count(Severity::Error) > 0, "refused without a reason:\n{text}");
            check_places(&report, text);
            false
        }
    }
}

/// Every diagnostic has a place within `text`, and the report can be drawn.
pub fn check_places(report: &Report, text: &str) {
    let lines: Vec<&str> = text.strip_prefix('\u{feff}').unwrap_or(text).split('\n').collect();
    for diagnostic in report.diagnostics() {
        let message = &diagnostic.message;
        let (line, column) = report.position(diagnostic).unwrap_or_else(|| panic!("no place: {message}"));
        let length = lines.get(line.wrapping_sub(1)).map(|line| line.chars().count());
        assert!(
            length.is_some_and(|length| (1..=length + 1).contains(&column)),
            "{line}:{column} is not in the file: {message}"
        );
        assert!(report.excerpt(diagnostic).is_some(), "{message} points outside of the file");
        assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
    }
    let drawn = report.render(false);
    assert!(report.is_empty() || drawn.contains(report.file_name()), "{drawn}");
}
