//! What Lockgate's eBPF program and user space must agree on: names, capacities and counter indices.
//!
//! - [`names`]: the program and its maps
//! - [`steer`]: what can become of a frame in the XDP program
//! - [`lane`]: how a lane names ports, and what can become of a frame there
//!
//! Only integers and arrays of them cross the maps. A type that joins them is `#[repr(C)]`, has no implicit padding, and
//! has its size asserted at compile time.

#![no_std]

pub mod lane;
pub mod names;
pub mod steer;
