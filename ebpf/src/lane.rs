//! Takes frames of many interfaces to user space and back through a tap, the lane (tc ingress).
//!
//! [`lockgate_port`] runs on each port's interface. A frame goes to the worker's plain lane with the port's slot in an
//! S-tag, which lives beside the bytes until the tap is read, so it costs nothing and a super-frame stays whole. With a tag
//! of the sender's already there a second one would go into the bytes and the kernel would segment, so such a frame goes to
//! the tagged lane instead, behind a prefix that names the slot.
//!
//! [`lockgate_lane`] runs on the plain lane's own ingress, where user space writes: it takes the S-tag off and hands the
//! frame to the slot's interface. Nothing else passes.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_NO_PREALLOC, TC_ACT_SHOT},
    btf_maps::{Array, HashMap, PerCpuArray},
    helpers::generated::{
        bpf_redirect, bpf_redirect_peer, bpf_skb_change_head, bpf_skb_store_bytes, bpf_skb_vlan_pop,
        bpf_skb_vlan_push,
    },
    macros::{btf_map, classifier},
    programs::TcContext,
};
use lockgate_ebpf_common::lane::{LaneCounter, PREFIX, PortEntry, SERVICE_TPID, SlotEntry};
use lockgate_ebpf_common::names::MAX_LANE_PORTS;

use crate::count;

/// The next program on the interface decides (`TCX_NEXT` of `linux/bpf.h`).
const TCX_NEXT: i32 = -1;

#[btf_map]
static LANE_PORTS: HashMap<
    u32,
    [u32; PortEntry::WORDS],
    { MAX_LANE_PORTS as usize },
    { BPF_F_NO_PREALLOC as usize },
> = HashMap::new();

#[btf_map]
static LANE_SLOTS: Array<[u32; SlotEntry::WORDS], { MAX_LANE_PORTS as usize }> = Array::new();

#[btf_map]
static LANE_COUNTERS: PerCpuArray<u64, { LaneCounter::COUNT }> = PerCpuArray::new();

/// On a port's interface: to the lane.
#[classifier]
fn lockgate_port(ctx: TcContext) -> i32 {
    settle(to_lane(ctx.skb.skb))
}

/// On the plain lane: to the port that the S-tag names.
#[classifier]
fn lockgate_lane(ctx: TcContext) -> i32 {
    settle(to_port(ctx.skb.skb))
}

fn settle((outcome, action): (LaneCounter, i32)) -> i32 {
    count(&LANE_COUNTERS, outcome.index());
    action
}

fn to_lane(skb: *mut __sk_buff) -> (LaneCounter, i32) {
    // SAFETY: the kernel calls the program with a valid context; the field is plain data.
    let ifindex = unsafe { (*skb).ifindex };
    // SAFETY: entries are replaced whole and never written through by the program.
    let Some(words) = (unsafe { LANE_PORTS.get(ifindex) }) else {
        return (LaneCounter::PassedNoPort, TCX_NEXT);
    };
    let port = PortEntry::from_words(*words);
    // SAFETY: as above.
    if unsafe { (*skb).vlan_present } == 0 {
        // SAFETY: the helper takes any context of this program type.
        let pushed = unsafe { bpf_skb_vlan_push(skb, SERVICE_TPID.to_be(), port.slot) };
        return match pushed {
            0 => (LaneCounter::ToLane, redirect(port.plain_lane)),
            _ => (LaneCounter::DroppedNoMemory, TC_ACT_SHOT),
        };
    }
    let slot = port.slot.to_be_bytes();
    // SAFETY: the helper takes any context of this program type.
    let grown = unsafe { bpf_skb_change_head(skb, PREFIX as u32, 0) };
    // SAFETY: `slot` is valid for the two bytes that the helper reads.
    let named = grown == 0 && unsafe { bpf_skb_store_bytes(skb, 0, slot.as_ptr().cast(), 2, 0) } == 0;
    match named {
        true => (LaneCounter::ToTaggedLane, redirect(port.tagged_lane)),
        false => (LaneCounter::DroppedNoMemory, TC_ACT_SHOT),
    }
}

fn to_port(skb: *mut __sk_buff) -> (LaneCounter, i32) {
    // SAFETY: the kernel calls the program with a valid context; the fields are plain data.
    let (present, proto, slot) = unsafe { ((*skb).vlan_present, (*skb).vlan_proto, (*skb).vlan_tci) };
    if present == 0 || proto != u32::from(SERVICE_TPID.to_be()) {
        return (LaneCounter::DroppedNoSlot, TC_ACT_SHOT);
    }
    let Some(entry) = LANE_SLOTS.get(slot & 0xffff).map(|words| SlotEntry::from_words(*words)) else {
        return (LaneCounter::DroppedNoSlot, TC_ACT_SHOT);
    };
    if entry.ifindex == 0 {
        return (LaneCounter::DroppedNoSlot, TC_ACT_SHOT);
    }
    let to_far_end = entry.is_far_end(destination(skb));
    // SAFETY: the helper takes any context of this program type.
    if unsafe { bpf_skb_vlan_pop(skb) } != 0 {
        return (LaneCounter::DroppedNoMemory, TC_ACT_SHOT);
    }
    if to_far_end {
        // SAFETY: the helper reads its arguments only.
        return (LaneCounter::ToFarEnd, unsafe { bpf_redirect_peer(entry.ifindex, 0) } as i32);
    }
    (LaneCounter::ToPort, redirect(entry.ifindex))
}

/// Destination address, the first byte highest; 0 if the frame has none in its first buffer.
fn destination(skb: *mut __sk_buff) -> u64 {
    // SAFETY: the kernel calls the program with a valid context; the fields are plain data.
    let (data, end) = unsafe { ((*skb).data as usize, (*skb).data_end as usize) };
    if data + 6 > end {
        return 0;
    }
    // SAFETY: the six bytes lie before `end`, as was just checked.
    let bytes = unsafe { *(data as *const [u8; 6]) };
    bytes.iter().fold(0, |address, byte| address << 8 | u64::from(*byte))
}

fn redirect(ifindex: u32) -> i32 {
    // SAFETY: the helper reads its arguments only.
    unsafe { bpf_redirect(ifindex, 0) as i32 }
}
