//! The program and its maps, by the names they carry in the object, and the maps' capacities.
//!
//! In `ebpf/src` a name is the identifier of a function or a static; user space looks things up by these constants. The
//! kernel cuts names at 15 bytes, so none is longer: `bpftool` shows what stands here.

/// The XDP program.
pub const STEER_PROGRAM: &str = "lockgate_steer";

/// The tc program of a port's interface.
pub const PORT_PROGRAM: &str = "lockgate_port";

/// The tc program of a lane.
pub const LANE_PROGRAM: &str = "lockgate_lane";

/// Hash: index of a port's interface → [`PortEntry`](crate::lane::PortEntry), as words.
pub const LANE_PORTS: &str = "LANE_PORTS";

/// Array: slot → [`SlotEntry`](crate::lane::SlotEntry), as words.
pub const LANE_SLOTS: &str = "LANE_SLOTS";

/// Per-CPU array: [`LaneCounter`](crate::lane::LaneCounter) → frames, as `u64`.
pub const LANE_COUNTERS: &str = "LANE_COUNTERS";

/// Entries of [`LANE_PORTS`] and [`LANE_SLOTS`] in the object: a slot is 16 bits. User space asks for as many as it needs.
pub const MAX_LANE_PORTS: u32 = 1 << 16;

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
const _: () = assert!(PORT_PROGRAM.len() <= LONGEST_NAME);
const _: () = assert!(LANE_PROGRAM.len() <= LONGEST_NAME);
const _: () = assert!(LANE_PORTS.len() <= LONGEST_NAME);
const _: () = assert!(LANE_SLOTS.len() <= LONGEST_NAME);
const _: () = assert!(LANE_COUNTERS.len() <= LONGEST_NAME);
const _: () = assert!(XSK_MAP.len() <= LONGEST_NAME);
const _: () = assert!(STEER_COUNTERS.len() <= LONGEST_NAME);
