//! Lockgate's dataplane: everything between two ports.
//!
//! ```text
//!  port/{af_xdp,tap}  rx                                   edge: I/O and unsafe live here
//!    frame/                    parse                       pure
//!    pipeline/classify         VLAN, traffic class         pure
//!    pipeline/ingress_policy   may it enter?               pure
//!    pipeline/ingress_shaper   within its rate? else wait  pure, takes now
//!    pipeline/lookup           learn source, find dest.    pure, takes now
//!    pipeline/pacing           too long for a slow port?   pure
//!    pipeline/queue            egress queues by class      pure
//!    pipeline/scheduler        which class next            pure
//!    pipeline/tx_shaper        when may it leave?          pure, takes now
//!  port/*             tx                                   edge
//! ```
//!
//! [`engine`] runs one round of that path over a set of devices; [`worker`] is the thread around it. Without the
//! feature `edges` only the pure core is built.

#![deny(unsafe_code)]

pub mod active;
pub mod buffer;
pub mod counters;
pub mod engine;
pub mod exchange;
pub mod frame;
pub mod id;
pub mod pipeline;
pub mod port;
pub mod state;
pub mod switch;
pub mod table;
pub mod time;
pub mod units;
pub mod verdict;
#[cfg(feature = "edges")]
pub mod worker;
