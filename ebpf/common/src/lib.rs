//! What Lockgate's eBPF program and user space must agree on: names, capacities and counter indices.
//!
//! - [`names`]: the program and its maps
//! - [`steer`]: what can become of a frame in the XDP program
//!
//! Only integers cross the maps today. A type that joins them is `#[repr(C)]`, has no implicit padding, and has its size
//! asserted at compile time.

#![no_std]

pub mod names;
pub mod steer;
