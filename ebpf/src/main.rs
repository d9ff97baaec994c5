//! Steers a device's frames to its AF_XDP sockets.
//!
//! A device that is a port or an uplink is the switch's alone, so nothing in a frame decides where it goes: every frame
//! goes to the socket of the receive queue it came in on. VLANs, policy and rates are user space's work.
//!
//! The object is loaded once per device: [`XSK_MAP`] holds that device's sockets, one per receive queue.

#![no_std]
#![no_main]

use aya_ebpf::{
    bindings::xdp_action::{XDP_DROP, XDP_PASS},
    btf_maps::{PerCpuArray, XskMap},
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use lockgate_ebpf_common::{names::MAX_QUEUES, steer::SteerCounter};

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
    count(outcome);
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

fn count(outcome: SteerCounter) {
    if let Some(counter) = STEER_COUNTERS.get_ptr_mut(outcome.index()) {
        // SAFETY: the slot belongs to this CPU, and an XDP program is not interrupted by another run of itself on its
        // CPU, so nobody else writes it; the kernel aligns it for a u64.
        unsafe { *counter = (*counter).wrapping_add(1) };
    }
}

/// The helpers the program uses are open to every licence; the kernel wants the word all the same.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Never reached: the verifier refuses a loop without an end, so a build with a panic in it does not load.
    loop {}
}
