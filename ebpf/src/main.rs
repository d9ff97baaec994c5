//! Lockgate's programs in the kernel: [`steer`] gives a device's frames to AF_XDP sockets, [`lane`] takes super-frames to
//! user space and back through a tap.
//!
//! The object is loaded once per XDP device and once for all lanes; what a load does not use of it costs a map of the
//! smallest size.

#![no_std]
#![no_main]

mod lane;
mod steer;

use aya_ebpf::btf_maps::PerCpuArray;

/// Adds one to a counter of this processor.
fn count<const ENTRIES: usize>(counters: &PerCpuArray<u64, ENTRIES>, index: u32) {
    if let Some(counter) = counters.get_ptr_mut(index) {
        // SAFETY: the slot belongs to this CPU, and a program is not interrupted by another run of itself on its CPU
        // (XDP and tc ingress both run with softirqs off), so nobody else writes it; the kernel aligns it for a u64.
        unsafe { *counter = (*counter).wrapping_add(1) };
    }
}

/// The helpers the programs use are open to every licence; the kernel wants the word all the same.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Never reached: the verifier refuses a loop without an end, so a build with a panic in it does not load.
    loop {}
}
