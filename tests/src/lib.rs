//! What the tests share: named frames, the switch over memory ports, a naive model of it, a simulator around it, and the
//! gate in front of tests that need privileges.

pub mod frames;
pub mod model;
pub mod require;
pub mod rig;
pub mod sim;
