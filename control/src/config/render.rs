//! Drawing a [`Report`] with miette's graphical handler.

use std::fmt::{self, Write};

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, NamedSource, SourceCode, SourceSpan,
    SpanContents,
};

use super::diagnostic::{Diagnostic, Report, Severity, Span};

const WIDTH_COLUMNS: usize = 110;
/// Beyond this nobody reads on, and a file of one long line would be drawn once for each mistake.
const DRAWN_MAX: usize = 100;
/// Of a line that is longer than any that was written by hand, only this much before and after the place is shown.
const MARGIN_BYTES: usize = 200;

/// All diagnostics of `report`, then one line with their number.
pub(super) fn render(report: &Report, source: &str, colours: bool) -> String {
    let theme = if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH_COLUMNS).with_context_lines(1);
    let source = NamedSource::new(report.file_name(), WholeLines(printable(source)));
    let mut text = String::new();
    for diagnostic in report.diagnostics().iter().take(DRAWN_MAX) {
        // Writing into a String fails only if a diagnostic cannot be drawn; its message must then still be seen.
        if handler.render_report(&mut text, &Drawn { diagnostic, source: &source }).is_err() {
            text.push_str(&diagnostic.message);
        }
        text.push('\n');
    }
    let (errors, warnings) = (report.count(Severity::Error), report.count(Severity::Warning));
    let counted = [(errors, "error"), (warnings, "warning")].into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counted.map(|(n, noun)| format!("{n} {noun}{}", if n == 1 { "" } else { "s" })).collect();
    if !counts.is_empty() {
        let shown = if report.diagnostics().len() > DRAWN_MAX { "; the first 100 are shown" } else { "" };
        let _infallible = writeln!(text, "{}: {}{shown}", report.file_name(), counts.join(", "));
    }
    text
}

/// The text with placeholders of the same length for what would move a terminal's cursor, so that places still fit.
fn printable(source: &str) -> String {
    let placeholder = |c: char| match c {
        '\n' | '\r' | '\t' => c,
        c if c.is_control() => {
            if c.len_utf8() == 1 {
                '?'
            } else {
                '¿'
            }
        }
        c => c,
    };
    source.chars().map(placeholder).collect()
}

/// The next place towards the start of `text` where a character begins.
fn char_start(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Text of which whole lines are shown, and only those with a label: miette knows lines around them, or, without any
/// context, nothing but the labelled text.
#[derive(Debug)]
struct WholeLines(String);

impl SourceCode for WholeLines {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        _lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let text = &self.0;
        let (start, end) = (span.offset().min(text.len()), (span.offset() + span.len()).min(text.len()));
        // Without context miette asks for the position of a label, not for text to show.
        let lines = if lines_before == 0 {
            start..end
        } else {
            let newline_before = text.as_bytes()[..start].iter().rposition(|b| *b == b'\n');
            let newline_after = text.as_bytes()[end..].iter().position(|b| *b == b'\n');
            let line = newline_before.map_or(0, |at| at + 1)..newline_after.map_or(text.len(), |at| end + at);
            let (first, last) = (start.saturating_sub(MARGIN_BYTES), end.saturating_add(MARGIN_BYTES));
            line.start.max(char_start(text, first))..line.end.min(char_start(text, last.min(text.len())))
        };
        text.read_span(&lines.into(), 0, 0)
    }
}

/// A diagnostic as miette wants to see it.
#[derive(Debug)]
struct Drawn<'a> {
    diagnostic: &'a Diagnostic,
    source: &'a NamedSource<WholeLines>,
}

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Drawn<'_> {}

impl miette::Diagnostic for Drawn<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        self.diagnostic.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.diagnostic.place.map(|_| self.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.diagnostic.place?;
        let label = Some(self.diagnostic.label.clone()).filter(|label| !label.is_empty());
        let primary = LabeledSpan::new_primary_with_span(label, range(place.span));
        let used_at = place.used_at.map(|span| LabeledSpan::at(range(span), "used here"));
        let related =
            self.diagnostic.related.iter().map(|(span, label)| LabeledSpan::at(range(*span), label.as_str()));
        Some(Box::new([primary].into_iter().chain(used_at).chain(related)))
    }
}

fn range(span: Span) -> std::ops::Range<usize> {
    span.into()
}

#[cfg(test)]
mod tests {
    use crate::config;

    #[test]
    fn a_long_line_of_mistakes_is_drawn_around_them_and_not_without_end() {
        let keys: String = (0..5000).map(|n| format!("ü{n}: {n}, ")).collect();
        let report =
            config::parse("long.yaml", &format!("{{ version: 1, ports: {{}}, {keys}}}")).unwrap_err();
        let drawn = report.render(false);
        assert!(drawn.ends_with("long.yaml: 5000 errors; the first 100 are shown\n"), "{drawn}");
        assert!(drawn.len() < 200_000, "{} bytes", drawn.len());
        assert!(drawn.contains("there is no key `ü99` here") && !drawn.contains("`ü100` here"));
    }

    #[test]
    fn nothing_in_the_file_moves_the_terminals_cursor() {
        let text = "version: 1\nswitch: { name: \"\\e[2J\" } # \u{9b}2J\nports: {}\n";
        let drawn = config::parse("odd.yaml", text).unwrap_err().render(false);
        assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{drawn:?}");
        let drawn = config::parse("odd.yaml", "version: 1\nports: \u{1b}[2J\n").unwrap_err().render(false);
        assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{drawn:?}");
    }
}
