//! The tc programs of lanes: loaded once, attached through BPF links, and gone with the process.

use std::fmt;
use std::sync::Arc;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use lockgate_ebpf_common::lane::{LaneCounter, PortEntry, SlotEntry};
use lockgate_ebpf_common::names::{LANE_COUNTERS, LANE_PORTS, LANE_PROGRAM, LANE_SLOTS, PORT_PROGRAM};
use parking_lot::Mutex;

use crate::frame::mac::MacAddr;
use crate::id::PortId;
use crate::port::af_xdp::program::OBJECT;

/// Both programs and their maps, shared by all lanes and ports of a switch.
#[derive(Clone)]
pub struct LanePrograms(Arc<Mutex<Loaded>>);

struct Loaded {
    ebpf: Ebpf,
    ports: HashMap<MapData, u32, [u32; PortEntry::WORDS]>,
    slots: Array<MapData, [u32; SlotEntry::WORDS]>,
}

/// The lane program on a lane. Dropping it detaches the program.
#[derive(Debug)]
pub struct LaneAttachment {
    _link: FdLink,
}

/// The program on a port's interface, and the port's entries in the maps. Dropping it detaches the one and removes the
/// others.
#[derive(Debug)]
pub struct PortAttachment {
    link: Option<FdLink>,
    programs: LanePrograms,
    slot: PortId,
    ifindex: u32,
}

/// A port for a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePortConfig {
    /// The port; its number is its slot.
    pub port: PortId,
    /// Name of its interface, in the calling thread's network namespace.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// Index of its worker's plain lane.
    pub plain_lane: u32,
    /// Index of its worker's tagged lane.
    pub tagged_lane: u32,
    /// Address of a veth's far end that is in another network namespace than the interface. Frames for it enter the far end
    /// directly.
    pub far_end: Option<MacAddr>,
}

/// Why a lane cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The kernel is too old.
    #[error("steering by tc takes Linux 6.6 or newer, which has TCX: use `steering: xdp`")]
    NoTcx,
    /// The kernel refused the programs or their maps.
    #[error("the kernel refused the tc programs (they take CAP_BPF and CAP_NET_ADMIN)")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kernel did not attach a program.
    #[error("interface {interface} takes no tc program")]
    Attach {
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        source: ProgramError,
    },
    /// The kernel attached a program in a way that would outlive a crash.
    #[error("the kernel cannot attach tc programs through BPF links (Linux 6.6 or newer is needed)")]
    NoLink,
    /// An entry could not be made.
    #[error("cannot enter interface {interface} into the lane's tables")]
    Map {
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        source: MapError,
    },
}

/// Whether the kernel has what lanes need.
pub fn is_supported() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

impl LanePrograms {
    /// Loads the programs with tables for `ports` ports.
    pub fn load(ports: usize) -> Result<Self, LaneError> {
        if !is_supported() {
            return Err(LaneError::NoTcx);
        }
        let refused = |error: Box<dyn std::error::Error + Send + Sync>| LaneError::Load(error);
        let entries = u32::try_from(ports.max(1)).unwrap_or(u32::MAX);
        let mut ebpf = EbpfLoader::new()
            .map_max_entries(LANE_PORTS, entries)
            .map_max_entries(LANE_SLOTS, entries)
            .load(OBJECT)
            .map_err(|error| refused(error.into()))?;
        for name in [PORT_PROGRAM, LANE_PROGRAM] {
            program(&mut ebpf, name)
                .and_then(SchedClassifier::load)
                .map_err(|error| refused(error.into()))?;
        }
        let mut take =
            |name: &str| ebpf.take_map(name).ok_or(MapError::InvalidName { name: name.to_owned() });
        let ports = take(LANE_PORTS).and_then(HashMap::try_from).map_err(|error| refused(error.into()))?;
        let slots = take(LANE_SLOTS).and_then(Array::try_from).map_err(|error| refused(error.into()))?;
        Ok(Self(Arc::new(Mutex::new(Loaded { ebpf, ports, slots }))))
    }

    /// Lets the lane program take what is written into the plain lane called `interface`.
    pub fn attach_lane(&self, interface: &str) -> Result<LaneAttachment, LaneError> {
        let link = attach(&mut self.0.lock().ebpf, LANE_PROGRAM, interface)?;
        Ok(LaneAttachment { _link: link })
    }

    /// Takes the interface's frames to its lane, and those of its slot to the interface.
    pub fn attach_port(&self, config: &LanePortConfig) -> Result<PortAttachment, LaneError> {
        let LanePortConfig { port, interface, ifindex, plain_lane, tagged_lane, far_end } = config;
        let mut attachment =
            PortAttachment { link: None, programs: self.clone(), slot: *port, ifindex: *ifindex };
        let mut loaded = self.0.lock();
        let far_end = far_end
            .map_or(0, |MacAddr(mac)| mac.iter().fold(0, |address, byte| address << 8 | u64::from(*byte)));
        let slot = SlotEntry { ifindex: *ifindex, far_end };
        let entry = PortEntry { plain_lane: *plain_lane, tagged_lane: *tagged_lane, slot: port.0 };
        let entered = loaded
            .slots
            .set(port.0.into(), slot.to_words(), 0)
            .and_then(|()| loaded.ports.insert(ifindex, entry.to_words(), 0));
        // From here on the entries are there and must go again.
        let linked = match entered {
            Ok(()) => attach(&mut loaded.ebpf, PORT_PROGRAM, interface),
            Err(source) => Err(LaneError::Map { interface: interface.clone(), source }),
        };
        // An attachment that is dropped asks for the lock.
        drop(loaded);
        attachment.link = Some(linked?);
        Ok(attachment)
    }

    /// Frames by outcome, summed over processors, since the programs were loaded.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let loaded = self.0.lock();
        let Some(map) = loaded.ebpf.map(LANE_COUNTERS) else { return Vec::new() };
        let Ok(counters) = PerCpuArray::<_, u64>::try_from(map) else { return Vec::new() };
        let total =
            |outcome: LaneCounter| counters.get(&outcome.index(), 0).map_or(0, |cpus| cpus.iter().sum());
        LaneCounter::ALL.iter().map(|outcome| (outcome.name(), total(*outcome))).collect()
    }
}

impl fmt::Debug for LanePrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LanePrograms")
    }
}

impl Drop for PortAttachment {
    fn drop(&mut self) {
        // First the program, so that no frame finds it without its entries.
        drop(self.link.take());
        let mut loaded = self.programs.0.lock();
        // What is gone already needs no removal.
        _ = loaded.ports.remove(&self.ifindex);
        _ = loaded.slots.set(self.slot.0.into(), SlotEntry::EMPTY.to_words(), 0);
    }
}

fn program<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut SchedClassifier, ProgramError> {
    ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// Attaches a program behind those of others, which are named and left alone.
fn attach(ebpf: &mut Ebpf, name: &str, interface: &str) -> Result<FdLink, LaneError> {
    let failed = |source| LaneError::Attach { interface: interface.to_owned(), source };
    if let Ok((_, others)) = SchedClassifier::query_tcx(interface, TcAttachType::Ingress) {
        for other in others {
            let (id, program) = (other.id(), other.name_as_str().unwrap_or_default().to_owned());
            tracing::warn!(interface, id, program, "another tc program sees the interface's frames first");
        }
    }
    let program = program(ebpf, name).map_err(failed)?;
    let order = TcAttachOptions::TcxOrder(LinkOrder::default());
    let id = program.attach_with_options(interface, TcAttachType::Ingress, order).map_err(failed)?;
    let link = program.take_link(id).map_err(failed)?;
    // A link that is a descriptor goes with the process; any other would outlive a crash.
    FdLink::try_from(link).map_err(|_| LaneError::NoLink)
}
