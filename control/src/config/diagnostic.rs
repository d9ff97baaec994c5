//! What is wrong with a topology file, and where.
//!
//! Readers and cross-checks push into [`Diagnostics`] and carry on, so one run reports every mistake. A [`Report`] is the
//! sorted result together with the text it talks about, and renders the way compilers do: message, file, line, column,
//! the offending text underlined, and the way out.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::render;

/// A piece of the file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// Where a value stands, and where it is used if that is elsewhere (a YAML alias or merge key).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The value's own text.
    pub span: Span,
    /// The alias that brought it here.
    pub used_at: Option<Span>,
}

/// A value that remembers where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub place: Place,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is taken, but probably does not do what was meant.
    Warning,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, naming the entry and the value.
    pub message: String,
    /// Where; `None` only when there is no text to point at, as for a file that cannot be read.
    pub place: Option<Place>,
    /// Words under the offending text.
    pub label: String,
    /// Other pieces of the file that belong to it.
    pub related: Vec<(Span, String)>,
    /// The way out.
    pub help: Option<String>,
}

/// Mistakes collected while reading.
#[derive(Debug, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

/// Every mistake of one file, in the order of the file.
#[derive(Clone, Debug)]
pub struct Report {
    file_name: String,
    source: String,
    diagnostics: Vec<Diagnostic>,
}

impl<T> Located<T> {
    /// The same place with another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: f(self.value), place: self.place }
    }
}

impl Diagnostic {
    /// A mistake of the file as a whole.
    pub fn without_place(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            place: None,
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    /// A mistake at `place`.
    pub fn error(place: Place, message: impl Into<String>) -> Self {
        Self { place: Some(place), ..Self::without_place(printable(message.into())) }
    }

    /// Puts words under the offending text.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Points at another piece of the file.
    pub fn related(&mut self, place: Place, label: impl Into<String>) -> &mut Self {
        self.related.push((place.span, label.into()));
        self
    }

    /// Says what to do.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }
}

impl Diagnostics {
    /// Records a mistake that refuses the file.
    pub fn error(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic::error(place, message))
    }

    /// Records something doubtful that does not refuse the file.
    pub fn warning(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic { severity: Severity::Warning, ..Diagnostic::error(place, message) })
    }

    /// Whether the file is refused.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Sorts what was collected and joins it with the text it talks about.
    pub fn into_report(mut self, file_name: &str, source: &str) -> Report {
        self.0.sort_by_key(|diagnostic| diagnostic.place.map(|place| place.used_at.unwrap_or(place.span)));
        Report { file_name: file_name.to_owned(), source: source.to_owned(), diagnostics: self.0 }
    }

    fn push(&mut self, diagnostic: Diagnostic) -> &mut Diagnostic {
        self.0.push(diagnostic);
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}

impl Report {
    /// A report of one mistake.
    pub fn single(file_name: &str, source: &str, diagnostic: Diagnostic) -> Self {
        Self { file_name: file_name.to_owned(), source: source.to_owned(), diagnostics: vec![diagnostic] }
    }

    /// A report about a file whose text is not there.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let name = path.display().to_string();
        Self::single(&name, "", Diagnostic::without_place(format!("cannot read {name}: {error}")))
    }

    /// The name of the file.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Everything found, in the order of the file.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// How many of them have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Line and column of a diagnostic, both from 1; the column counts characters.
    pub fn position(&self, diagnostic: &Diagnostic) -> Option<(usize, usize)> {
        diagnostic.place.map(|place| line_and_column(&self.source, place.span.start))
    }

    /// The text under a diagnostic.
    pub fn excerpt(&self, diagnostic: &Diagnostic) -> Option<&str> {
        let span = diagnostic.place?.span;
        self.source.get(Range::from(span))
    }

    /// Everything for people; `colours` for a terminal.
    pub fn render(&self, colours: bool) -> String {
        render::render(self, &self.source, colours)
    }
}

/// Without colours.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start..span.end
    }
}

impl From<Span> for Place {
    fn from(span: Span) -> Self {
        Self { span, used_at: None }
    }
}

/// A message quotes the file; what would move a terminal's cursor is written as an escape.
fn printable(message: String) -> String {
    if !message.chars().any(char::is_control) {
        return message;
    }
    let escaped = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    message.chars().map(escaped).collect()
}

/// Line and column of a byte, both from 1; the column counts characters.
pub fn line_and_column(source: &str, byte: usize) -> (usize, usize) {
    let before = source.get(..byte).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The byte at a line and column, both from 1; the end of the text if it is shorter.
pub fn byte_at(source: &str, line: usize, column: usize) -> usize {
    let line_start: usize = source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = &source[line_start..];
    let in_line = rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(byte, _)| byte);
    line_start + in_line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_survive_a_round_trip() {
        let source = "a: 1\nü: [é, x]\n";
        assert_eq!(line_and_column(source, source.find('x').unwrap()), (2, 8));
        assert_eq!(byte_at(source, 2, 8), source.find('x').unwrap());
        assert_eq!(byte_at(source, 9, 9), source.len());
    }

    #[test]
    fn a_report_is_in_the_order_of_the_file() {
        let mut diagnostics = Diagnostics::default();
        diagnostics.error(Span { start: 4, end: 5 }.into(), "later");
        diagnostics.warning(Span { start: 0, end: 1 }.into(), "earlier");
        assert!(diagnostics.has_errors());
        let report = diagnostics.into_report("sw.yaml", "a: 12\n");
        let messages: Vec<_> = report.diagnostics().iter().map(|d| d.message.as_str()).collect();
        assert_eq!(messages, ["earlier", "later"]);
        assert_eq!((report.count(Severity::Error), report.count(Severity::Warning)), (1, 1));
        assert_eq!(report.excerpt(&report.diagnostics()[1]), Some("2"));
    }
}
