//! Bodies of the fuzz targets: `fuzz/` calls them with what libFuzzer makes up, `tests/fuzz_regressions.rs` with what was
//! found, so that the two can never drift apart. A body returns if all is well and panics if something does not hold.

pub mod config;
pub mod frame_parser;
mod input;
pub mod pipeline;
pub mod seeds;
pub mod vnet_header;
