//! What is said about text that is not YAML, or more of it than any topology has.
//!
//! The parser knows what went wrong and where; the way out is ours.

use super::diagnostic::{Diagnostic, Span, byte_at};

/// What the parser's message contains, what to say instead (or its own words), and the way out.
const WAYS_OUT: [(&str, Option<&str>, &str); 16] = [
    (
        "multiple YAML documents",
        Some("not valid YAML: a second document starts here"),
        "a topology is one document: remove the `---` line and what does not belong to it",
    ),
    (
        "budget breached: Depth",
        Some("this is nested deeper than any topology"),
        "look for brackets that are not closed",
    ),
    (
        "budget breached",
        Some("with what its aliases stand for, the file has more values than any topology"),
        "an alias stands for everything under its anchor: use fewer of them inside each other",
    ),
    (
        "alias replay",
        Some("with what its aliases stand for, the file has more values than any topology"),
        "an alias stands for everything under its anchor: use fewer of them inside each other",
    ),
    (
        "recursive references",
        Some("not valid YAML: an alias stands within what its own anchor names"),
        "an anchor cannot contain itself: write the value, or give the inner one another anchor",
    ),
    ("unknown anchor", None, "define it above this line with `&` and its name, or write the value itself"),
    (
        "merge value",
        None,
        "`<<` takes an alias such as `*name` of keys and values, or a list of such aliases",
    ),
    ("tab", None, "indent with spaces; YAML does not allow tabs there"),
    ("unclosed", None, "close it, on the line where it was meant to end"),
    ("escape", None, "in double quotes a backslash begins an escape; in single quotes it is a backslash"),
    ("unexpected character", None, "remove the character, or put the whole value in quotes"),
    ("tag", None, "remove the tag: a topology needs none"),
    ("BOM", None, "remove the invisible character at this place: it belongs at the start of a file only"),
    ("mapping values are not allowed", None, "check the indentation of this line and of the one before"),
    ("did not find expected", None, "check brackets, quotes and indentation here and on the line before"),
    ("", None, "check brackets, quotes and indentation around this place"),
];

/// The parser's error as a diagnostic of the file.
pub(super) fn diagnostic(error: &serde_saphyr::Error, source: &str) -> Diagnostic {
    let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let start = byte_at(source, to_usize(line), to_usize(column));
    let end = source[start..].chars().next().map_or(start, |c| start + c.len_utf8());
    let text = error.to_string();
    // The place is shown as every other place is; the parser's own way of saying it would be said twice.
    let what = text.split_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let (_, instead, way_out) =
        WAYS_OUT.into_iter().find(|(part, ..)| what.contains(part)).unwrap_or(("", None, ""));
    let message = instead.map_or_else(|| format!("not valid YAML: {what}"), str::to_owned);
    let mut diagnostic = Diagnostic::error(Span { start, end }.into(), message);
    diagnostic.help(way_out);
    diagnostic
}
