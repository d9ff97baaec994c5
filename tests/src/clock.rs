//! The operating system's clock, for tests of real processes. Every wait has an end.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two looks at something that is waited for.
const PAUSE: Duration = Duration::from_millis(5);

/// Measures time since its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "end-to-end tests run in real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Tries until there is an answer.
///
/// # Panics
/// If there is none within `limit`.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> T {
    let watch = Stopwatch::start();
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(watch.elapsed() < limit, "waited {limit:?} for: {what}");
        sleep(PAUSE);
    }
}
