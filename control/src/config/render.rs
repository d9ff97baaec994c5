//! Drawing a [`Report`] with miette's graphical handler.

use std::fmt::{self, Write};

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, NamedSource, SourceCode, SourceSpan,
    SpanContents,
};

use super::diagnostic::{Diagnostic, Report, Severity, Span};

const WIDTH_COLUMNS: usize = 110;

/// All diagnostics of `report`, then one line with their number.
pub(super) fn render(report: &Report, source: &str, colours: bool) -> String {
    let theme = if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH_COLUMNS).with_context_lines(1);
    let source = NamedSource::new(report.file_name(), WholeLines(source.to_owned()));
    let mut text = String::new();
    for diagnostic in report.diagnostics() {
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
        let _infallible = writeln!(text, "{}: {}", report.file_name(), counts.join(", "));
    }
    text
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
            newline_before.map_or(0, |at| at + 1)..newline_after.map_or(text.len(), |at| end + at)
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
