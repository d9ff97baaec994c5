//! The XDP program of one interface: loaded, attached through a BPF link, and gone with the process.

use aya::maps::{MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, xdp::XdpMode};
use aya::{Ebpf, EbpfLoader};
use lockgate_ebpf_common::names::{LANE_PORTS, LANE_SLOTS, STEER_COUNTERS, STEER_PROGRAM, XSK_MAP};
use lockgate_ebpf_common::steer::SteerCounter;

/// The compiled program, built from `ebpf/` by `scripts/build-ebpf`.
pub(in crate::port) static OBJECT: &[u8] =
    aya::include_bytes_aligned!("../../../../ebpf/object/lockgate.bpf.o");

/// Where in the driver's receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeringMode {
    /// In the driver, before the kernel makes a socket buffer.
    Native,
    /// In the network stack: any interface, slower.
    Generic,
}

/// The loaded program and its attachment. Dropping it detaches the program.
#[derive(Debug)]
pub struct SteerProgram {
    ebpf: Ebpf,
    mode: SteeringMode,
    /// A file descriptor: when the process dies, however it dies, the kernel detaches the program.
    _link: FdLink,
}

/// Why the program could not be loaded or attached; the caller adds the interface.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The kernel refused the program or one of its maps.
    #[error(
        "the kernel refused the XDP program (Linux 5.18 or newer is needed, with CAP_BPF and CAP_NET_ADMIN)"
    )]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another XDP program is attached.
    #[error("another XDP program is attached: detach it first (`bpftool net` names it); lockgate never does")]
    Foreign,
    /// The driver refused.
    #[error("the interface takes no XDP program, native or generic")]
    Attach(#[source] ProgramError),
    /// The kernel has no BPF links for XDP, so the program would outlive a crash.
    #[error("the kernel cannot attach XDP programs through BPF links (Linux 5.9 or newer is needed)")]
    NoLink,
    /// A socket could not be entered into the map.
    #[error("cannot connect receive queue {queue} to its socket")]
    Map {
        /// The queue.
        queue: u32,
        /// What the kernel said.
        #[source]
        source: MapError,
    },
}

impl SteeringMode {
    /// The metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl SteerProgram {
    /// Loads the program and attaches it to the interface: native if the driver can, else generic. Frames pass to the
    /// network stack until [`Self::connect`] names a socket for their queue.
    pub fn attach(ifindex: u32) -> Result<Self, SteerError> {
        // The lanes' tables are no business of this device.
        let mut ebpf = EbpfLoader::new()
            .map_max_entries(LANE_PORTS, 1)
            .map_max_entries(LANE_SLOTS, 1)
            .load(OBJECT)
            .map_err(|error| SteerError::Load(error.into()))?;
        let program: &mut Xdp = ebpf
            .program_mut(STEER_PROGRAM)
            .ok_or_else(|| SteerError::Load(format!("no program {STEER_PROGRAM} in the object").into()))?
            .try_into()
            .map_err(|error: ProgramError| SteerError::Load(error.into()))?;
        program.load().map_err(|error| SteerError::Load(error.into()))?;
        let (link, mode) = match attach_link(program, ifindex, XdpMode::Driver) {
            // Only a driver without XDP is a reason to fall back: anything else would be hidden by it.
            Err(SteerError::Attach(error)) if errno(&error) == Some(libc::EOPNOTSUPP) => {
                (attach_link(program, ifindex, XdpMode::Skb)?, SteeringMode::Generic)
            }
            native => (native?, SteeringMode::Native),
        };
        Ok(Self { ebpf, mode, _link: link })
    }

    /// Sends the frames of receive queue `queue` to the socket `fd` from now on.
    pub fn connect(&mut self, queue: u32, fd: impl std::os::fd::AsRawFd) -> Result<(), SteerError> {
        let error = |source| SteerError::Map { queue, source };
        let map = self
            .ebpf
            .map_mut(XSK_MAP)
            .ok_or_else(|| error(MapError::InvalidName { name: XSK_MAP.into() }))?;
        XskMap::try_from(map).and_then(|mut sockets| sockets.set(queue, fd, 0)).map_err(error)
    }

    /// Where the program runs.
    pub fn mode(&self) -> SteeringMode {
        self.mode
    }

    /// Frames by outcome, summed over processors.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Some(map) = self.ebpf.map(STEER_COUNTERS) else { return Vec::new() };
        let Ok(counters) = PerCpuArray::<_, u64>::try_from(map) else { return Vec::new() };
        let total =
            |outcome: SteerCounter| counters.get(&outcome.index(), 0).map_or(0, |cpus| cpus.iter().sum());
        SteerCounter::ALL.iter().map(|outcome| (outcome.name(), total(*outcome))).collect()
    }
}

fn attach_link(program: &mut Xdp, ifindex: u32, mode: XdpMode) -> Result<FdLink, SteerError> {
    let id = program.attach_to_if_index(ifindex, mode).map_err(|error| match errno(&error) {
        Some(libc::EBUSY | libc::EEXIST) => SteerError::Foreign,
        _ => SteerError::Attach(error),
    })?;
    let link = program.take_link(id).map_err(SteerError::Attach)?;
    // aya falls back to a netlink attachment where links are missing; that one would survive a crash.
    FdLink::try_from(link).map_err(|_| SteerError::NoLink)
}

fn errno(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    }
}
