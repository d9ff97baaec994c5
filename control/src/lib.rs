//! Lockgate's control side: configuration, host networking, API and metrics around the dataplane.

pub mod api;
pub mod check;
pub mod cli;
pub mod compile;
pub mod config;
pub mod daemon;
pub mod host;
pub mod metrics;
pub mod show;
pub mod status;
pub mod topology;
