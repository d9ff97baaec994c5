//! Tables with aligned columns, some under a common title.

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column's head.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Title over this and the following columns with the same one; empty for none.
    pub over: &'static str,
    /// Its own title.
    pub title: &'static str,
    /// Where its cells stand.
    pub align: Align,
}

/// Where cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A column of words.
pub const fn words(title: &'static str) -> Column {
    Column { over: "", title, align: Align::Left }
}

/// A column of numbers.
pub const fn numbers(title: &'static str) -> Column {
    Column { over: "", title, align: Align::Right }
}

impl Column {
    /// The same column under a common title.
    pub const fn under(self, over: &'static str) -> Self {
        Self { over, ..self }
    }
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// The lines of the table, each ended.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        if self.columns.iter().any(|column| !column.over.is_empty()) {
            let over = self.spans().map(|(over, columns)| (over, Align::Left, total(&widths[columns])));
            push_line(&mut text, over);
        }
        let aligned = || self.columns.iter().zip(&widths);
        push_line(&mut text, aligned().map(|(column, width)| (column.title, column.align, *width)));
        for row in &self.rows {
            let cells = row.iter().zip(aligned());
            push_line(&mut text, cells.map(|(cell, (column, width))| (cell.as_str(), column.align, *width)));
        }
        text
    }

    /// Wide enough for every cell, and together for the common title.
    fn widths(&self) -> Vec<usize> {
        let width = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| row[at].chars().count());
            cells.chain([column.title.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(width).collect();
        for (over, columns) in self.spans() {
            let missing = over.chars().count().saturating_sub(total(&widths[columns.clone()]));
            widths[columns.end - 1] += missing;
        }
        widths
    }

    /// Common titles and the columns under each.
    fn spans(&self) -> impl Iterator<Item = (&'static str, std::ops::Range<usize>)> {
        let mut start = 0;
        self.columns.chunk_by(|a, b| a.over == b.over && !a.over.is_empty()).map(move |columns| {
            let span = start..start + columns.len();
            start = span.end;
            (columns[0].over, span)
        })
    }
}

const GAP: usize = 2;

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn push_line<'a>(text: &mut String, cells: impl Iterator<Item = (&'a str, Align, usize)>) {
    let cells = cells.map(|(cell, align, width)| match align {
        Align::Left => format!("{cell:<width$}"),
        Align::Right => format!("{cell:>width$}"),
    });
    let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_under_their_titles() {
        let mut table = Table::new([
            words("PORT"),
            numbers("BYTES").under("ingress (port → switch)"),
            numbers("DROPS").under("ingress (port → switch)"),
            words("WHY"),
        ]);
        table.row(["web1".to_owned(), "1.5 KiB".to_owned(), "0".to_owned(), "–".to_owned()]);
        table.row(["a-long-name".to_owned(), "7 B".to_owned(), "12".to_owned(), String::new()]);
        let expected = "             ingress (port → switch)\n\
                        PORT           BYTES           DROPS  WHY\n\
                        web1         1.5 KiB               0  –\n\
                        a-long-name      7 B              12\n";
        assert_eq!(table.render(), expected);
    }
}
