//! What a frame costs: each stage alone, the MAC table by its size, and the whole pipeline without any kernel around it.
//!
//!     cargo bench -p lockgate-benches                                       prints
//!     cargo bench -p lockgate-benches -- --write ../docs/performance.md     writes the tables into the file
//!     cargo bench -p lockgate-benches -- --only FDB                         only rows that contain the word
//!
//! Every case asserts that it allocates nothing. No figure is asserted.

#[path = "micro/pipelines.rs"]
mod pipelines;
#[path = "micro/stages.rs"]
mod stages;

use std::fmt::Write;
use std::process::ExitCode;

use lockgate_benches::allocations::{self, CountingAllocator};
use lockgate_benches::harness::{self, Case, Figures};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BEGIN: &str = "<!-- micro: written by benches/micro.rs -->";
const END: &str = "<!-- micro: end -->";

fn main() -> ExitCode {
    allocations::assert_counts();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tables = [
        ("One stage, by the frames of a batch", stages::stages()),
        ("MAC table, by its entries", stages::fdb()),
        ("Pipeline only, by the frames of a batch", pipelines::by_batch()),
        ("Pipeline only, by its shaped ports", pipelines::by_ports()),
    ];
    if harness::serve_count(&arguments, tables.iter().flat_map(|(_, cases)| cases)) {
        return ExitCode::SUCCESS;
    }
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let only = option("--only").unwrap_or_default();
    let mut text = String::new();
    for (title, cases) in tables {
        let measured: Vec<_> = cases
            .into_iter()
            .filter(|case| case.row.contains(only))
            .map(|case| {
                let figures = case.run();
                eprintln!("{}, {}: {}", case.row, case.column, cell(figures));
                (case, figures)
            })
            .collect();
        if !measured.is_empty() {
            table(&mut text, title, &measured);
        }
    }
    println!("{text}");
    match option("--write").map(|path| write_into(path, &text)) {
        None | Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("micro: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Rows and columns in the order in which the cases name them first.
fn table(text: &mut String, title: &str, measured: &[(Case, Figures)]) {
    let (mut rows, mut columns): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (case, _) in measured {
        let unseen = |seen: &[&str], name: &str| !seen.contains(&name);
        if unseen(&rows, &case.row) {
            rows.push(&case.row);
        }
        if unseen(&columns, &case.column) {
            columns.push(&case.column);
        }
    }
    let mut line = |cells: &str| {
        let _infallible = writeln!(text, "{cells}");
    };
    line(&format!("| {title} | {} |", columns.join(" | ")));
    line(&format!("|---|{}", "---|".repeat(columns.len())));
    for row in rows {
        let cells = columns.iter().map(|column| {
            let found = measured.iter().find(|(case, _)| case.row == row && case.column == *column);
            found.map_or("–".to_owned(), |(_, figures)| cell(*figures))
        });
        line(&format!("| {row} | {} |", cells.collect::<Vec<_>>().join(" | ")));
    }
    line("");
}

fn cell(figures: Figures) -> String {
    let instructions = figures.instructions.map_or("–".to_owned(), |count| format!("{count:.0}"));
    format!("{:.1} ns, {instructions} instr.", figures.nanos)
}

/// Replaces what stands between the markers of the file.
fn write_into(path: &str, tables: &str) -> Result<(), String> {
    let old = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let (before, rest) = old.split_once(BEGIN).ok_or(format!("{path} has no line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("{path} has no line {END}"))?;
    let new = format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", tables.trim_end());
    std::fs::write(path, new).map_err(|error| format!("{path}: {error}"))
}
