//! What the tests share: named frames, the switch over memory ports, a naive model of it, a simulator around it, and the
//! gate in front of tests that need privileges.

pub mod clock;
pub mod frames;
pub mod fuzz;
pub mod guest;
pub mod http;
pub mod internet_checksum;
pub mod lab;
pub mod model;
pub mod mutation;
pub mod netns;
pub mod packet_socket;
pub mod process;
pub mod prometheus;
pub mod random;
pub mod require;
pub mod rig;
pub mod sim;
pub mod switch;
pub mod traffic;
pub mod tun;
pub mod xsk_socket;
