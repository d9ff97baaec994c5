//! Metrics for Prometheus, built anew from the counters at each scrape: what is not there any more has no series.
//!
//! [`names`] is the table of metrics, [`collect`] fills a [`page`] from [`Running`], [`http`] serves it.

pub mod collect;
pub mod http;
pub mod names;
pub mod page;

pub use http::{ListenError, listen, serve};

use crate::status::Running;

/// The page as a scrape gets it now. Blocks until the workers tell their devices' counters.
///
/// # Errors
/// If the page cannot be encoded.
pub fn render(running: &Running) -> Result<String, prometheus::Error> {
    collect::collect(running).encode()
}
