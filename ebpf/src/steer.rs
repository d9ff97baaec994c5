//! Steers a device's frames to its AF_XDP sockets (XDP).
//!
//! A device that is a port or an uplink is the switch's alone, so nothing in a frame decides where it goes: every frame
//! goes to the socket of the receive queue it came in on. VLANs, policy and rates are user space's work.
//!
//! The object is loaded once per device: [`XSK_MAP`] holds that device's sockets, one per receive queue.

use aya_ebpf::{
    bindings::xdp_action::{XDP_DROP, XDP_PASS},
    btf_maps::{PerCpuArray, XskMap},
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use lockgate_ebpf_common::{names::MAX_QUEUES, steer::SteerCounter};

use crate::count;

/// Destination, source and EtherType: the shortest thing that is an Ethernet frame.
const ETHERNET_HEADER: usize = 14;

// The maps' and the program's identifiers are the names in `lockgate_ebpf_common::names`.

#[btf_map]
static XSK_MAP: XskMap<{ MAX_QUEUES as usize }> = XskMap::new();

#[btf_map]
static STEER_COUNTERS: PerCpuArray<u64, { SteerCounter::COUNT }> = PerCpuArray::new();

/// The entry. `frags` lets a driver hand over frames larger than a page: without it MTU 9000 is refused.
#[xdp(frags)]
fn lockgate_steer(ctx: XdpContext) -> u32 {
    let (outcome, action) = steer(&ctx);
    count(&STEER_COUNTERS, outcome.index());
    action
}

fn steer(ctx: &XdpContext) -> (SteerCounter, u32) {
    if is_runt(ctx) {
        return (SteerCounter::DroppedRunt, XDP_DROP);
    }
    // The second argument is the action if the queue has no socket. A closed socket leaves the map by itself.
    match XSK_MAP.redirect(ctx.rx_queue_index(), XDP_PASS.into()) {
        Ok(redirect) => (SteerCounter::Redirected, redirect),
        Err(pass) => (SteerCounter::PassedNoSocket, pass),
    }
}

/// Looks at the first buffer only: a frame of many buffers has its Ethernet header there.
fn is_runt(ctx: &XdpContext) -> bool {
    ctx.data() + ETHERNET_HEADER > ctx.data_end()
}
