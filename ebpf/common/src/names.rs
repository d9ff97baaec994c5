//! The program and its maps, by the names they carry in the object, and the maps' capacities.
//!
//! In `ebpf/src` a name is the identifier of a function or a static; user space looks things up by these constants. The
//! kernel cuts names at 15 bytes, so none is longer: `bpftool` shows what stands here.

/// The XDP program.
pub const STEER_PROGRAM: &str = "lockgate_steer";

/// XSKMAP: receive queue → the AF_XDP socket bound to it.
pub const XSK_MAP: &str = "XSK_MAP";

/// Per-CPU array: [`SteerCounter`](crate::steer::SteerCounter) → frames, as `u64`.
pub const STEER_COUNTERS: &str = "STEER_COUNTERS";

/// Entries of [`XSK_MAP`]. A device may have more receive queues; then it must be set to use no more than these, because
/// frames of a further queue go to the host's stack.
pub const MAX_QUEUES: u32 = 64;

/// The kernel's `BPF_OBJ_NAME_LEN` without the closing NUL.
const LONGEST_NAME: usize = 15;

const _: () = assert!(STEER_PROGRAM.len() <= LONGEST_NAME);
const _: () = assert!(XSK_MAP.len() <= LONGEST_NAME);
const _: () = assert!(STEER_COUNTERS.len() <= LONGEST_NAME);
