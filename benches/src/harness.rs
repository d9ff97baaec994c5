//! Runs one case many times: nanoseconds by the clock, instructions by valgrind, allocations by the counting allocator.
//!
//! The processor's own counter of instructions (`perf_event_open`) does not exist in most virtual machines. Valgrind
//! counts the same instructions on every machine, so where it is installed the program runs itself under it, once per
//! case, and reads what was executed within [`measured`].

use std::process::Command;
use std::time::Instant;

use crate::allocations;

/// Time of one sample: long against a timer interrupt, short against a round of the scheduler.
const SAMPLE_NANOS: u128 = 20_000_000;
const SAMPLES: usize = 15;
/// Calls that valgrind sees. It counts exactly, so few are enough.
const COUNTED_CALLS: usize = 50;
const WARM_UP_CALLS: usize = 20;

/// What valgrind is told to look at, and what the program answers to.
const MEASURED: &str = "lockgate_benches::harness::measured*";
const COUNT_FLAG: &str = "--count-instructions-of";

/// Something to measure.
pub struct Case {
    /// The row it belongs to.
    pub row: String,
    /// The column.
    pub column: String,
    /// Frames, or table operations, of one call.
    pub frames: usize,
    /// Sets it up; a call of what comes back is one measurement.
    pub make: Box<dyn Fn() -> Box<dyn FnMut()>>,
}

/// What was measured of one frame.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Median over the samples.
    pub nanos: f64,
    /// `None` without valgrind.
    pub instructions: Option<f64>,
}

impl Case {
    /// The case of `row` and `column` whose calls each handle `frames` frames.
    pub fn new<C: FnMut() + 'static>(
        row: impl Into<String>,
        column: impl Into<String>,
        frames: usize,
        make: impl Fn() -> C + 'static,
    ) -> Self {
        let make = Box::new(move || Box::new(make()) as Box<dyn FnMut()>);
        Self { row: row.into(), column: column.into(), frames, make }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.row, self.column)
    }

    /// Measures, and panics if a call allocates.
    #[expect(clippy::disallowed_methods, reason = "a bench is about time as it passes")]
    pub fn run(&self) -> Figures {
        let mut call = (self.make)();
        measured(&mut *call, WARM_UP_CALLS);
        let mut timed = |calls: usize| {
            let start = Instant::now();
            let ((), allocated) = allocations::count(|| measured(&mut *call, calls));
            let elapsed = start.elapsed().as_nanos();
            assert_eq!(allocated, 0, "{} allocates", self.name());
            elapsed
        };
        let mut calls = 1;
        while timed(calls) < SAMPLE_NANOS {
            calls *= 2;
        }
        let per_frame = |nanos: u128| nanos as f64 / (calls * self.frames) as f64;
        let mut samples: Vec<f64> = (0..SAMPLES).map(|_| per_frame(timed(calls))).collect();
        samples.sort_by(f64::total_cmp);
        Figures { nanos: samples[SAMPLES / 2], instructions: self.instructions() }
    }

    /// Instructions of one frame, as this program counts them under valgrind.
    fn instructions(&self) -> Option<f64> {
        let program = std::env::current_exe().ok()?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
            .arg(format!("--toggle-collect={MEASURED}"))
            .arg(program)
            .args([COUNT_FLAG, &self.name()])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let collected =
            text.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, number)| number);
        let instructions: f64 = collected?.trim().parse().ok()?;
        assert!(instructions > 0.0, "{} did not run under valgrind", self.name());
        Some(instructions / (COUNTED_CALLS * self.frames) as f64)
    }
}

/// If this program was started to be counted: runs that case as often as [`Case::run`] expects, and answers `true`.
pub fn serve_count<'c>(arguments: &[String], cases: impl IntoIterator<Item = &'c Case>) -> bool {
    let Some(at) = arguments.iter().position(|argument| argument == COUNT_FLAG) else { return false };
    let wanted = arguments.get(at + 1).map(String::as_str).unwrap_or_default();
    if let Some(case) = cases.into_iter().find(|case| case.name() == wanted) {
        let mut call = (case.make)();
        (0..WARM_UP_CALLS).for_each(|_| call());
        measured(&mut *call, COUNTED_CALLS);
    }
    true
}

/// The calls and next to nothing else. Its name is what valgrind looks for, so it must not be merged into its callers.
#[inline(never)]
pub fn measured(call: &mut dyn FnMut(), calls: usize) {
    for _ in 0..calls {
        call();
    }
}
