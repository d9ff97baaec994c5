//! The tables of the frame path. They know bytes, addresses and time; which port or stage uses them, they do not know.
//!
//! Each has one writer, the worker that owns it, so there are no locks. `now` is an argument, and nothing here
//! allocates per frame.
#![forbid(unsafe_code)]

pub mod fdb;
pub mod frame_bucket;
pub mod frame_list;
pub mod shaper;
pub mod token_bucket;
