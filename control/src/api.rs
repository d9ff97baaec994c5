//! The daemon's API: HTTP with JSON over a Unix socket that only the daemon's user can open.
//!
//! | route | answer |
//! |---|---|
//! | `GET /v1/status` | [`types::Status`] |
//! | `GET /v1/ports` | a list of [`types::Port`] |
//! | `GET /v1/groups` | a list of [`types::Group`] |
//! | `GET /v1/fdb` | [`types::Fdb`] |
//! | `GET /v1/shapers` | a list of [`types::Shaper`] |
//! | `GET /v1/drops` | a list of [`types::Drop`] |
//!
//! Anything else, and what cannot be answered, is a [`types::Failure`].

pub mod client;
mod server;
mod socket;
pub mod types;
pub mod views;

pub use server::serve;
pub use socket::{ApiListener, SocketError, listen, remove};
