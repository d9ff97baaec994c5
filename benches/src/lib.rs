//! What the benches share: frames, devices that play them without a kernel, and how what happens to them is measured.

pub mod allocations;
pub mod frames;
pub mod harness;
pub mod replay;
pub mod rig;
