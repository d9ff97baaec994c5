//! The switch as its documentation describes it, in the most naive way: one frame at a time, lists instead of tables, no
//! batches, no queues, no workers. The real one must give the same answers.

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::state::{BeyondLimit, FdbSettings, PortState, SourcePolicy, VlanMode};
use lockgate_dataplane::time::Instant;
use lockgate_dataplane::verdict::DropReason;

/// The naive switch.
#[derive(Debug)]
pub struct ModelSwitch {
    ports: Vec<PortState>,
    fdb: FdbSettings,
    mtu: usize,
    is_up: Vec<bool>,
    first_seen: Vec<Option<MacAddr>>,
    entries: Vec<Entry>,
}

/// What becomes of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Every frame that leaves, with the port it leaves by.
    pub sent: Vec<(PortId, Vec<u8>)>,
    /// Every drop, with where it is counted.
    pub dropped: Vec<(PortId, Direction, DropReason)>,
}

#[derive(Debug)]
struct Entry {
    vlan: VlanId,
    mac: MacAddr,
    port: PortId,
    kind: Kind,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Configured,
    FirstSeen,
    Learned { last_used: Instant },
}

/// A frame that got past the checks at its port.
struct Admitted {
    vlan: VlanId,
    /// The upper four bits of its tag: priority and drop eligibility.
    priority: u16,
    /// The frame without its tag.
    untagged: Vec<u8>,
}

impl ModelSwitch {
    /// A switch with these ports, all up, each with a device of this MTU.
    pub fn new(ports: &[PortState], fdb: FdbSettings, mtu: usize) -> Self {
        let mut entries = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let SourcePolicy::Pinned(macs) = &port.sources else { continue };
            for vlan in vlans(&port.vlan) {
                let entry =
                    |mac: &MacAddr| Entry { vlan, mac: *mac, port: id(index), kind: Kind::Configured };
                entries.extend(macs.iter().map(entry));
            }
        }
        Self {
            ports: ports.to_vec(),
            fdb,
            mtu,
            is_up: vec![true; ports.len()],
            first_seen: vec![None; ports.len()],
            entries,
        }
    }

    /// The port gets its device back.
    pub fn port_up(&mut self, port: PortId) {
        self.is_up[port.index()] = true;
    }

    /// The port loses its device, and with it every address that was not configured.
    pub fn port_down(&mut self, port: PortId) {
        self.is_up[port.index()] = false;
        self.first_seen[port.index()] = None;
        self.entries.retain(|entry| entry.port != port || entry.kind == Kind::Configured);
    }

    /// A frame comes in.
    pub fn receive(&mut self, now: Instant, ingress: PortId, bytes: &[u8]) -> Outcome {
        let age = self.fdb.age;
        self.entries.retain(|entry| match entry.kind {
            Kind::Learned { last_used } => now.saturating_since(last_used) < age,
            Kind::Configured | Kind::FirstSeen => true,
        });
        let receivers = self.admit(ingress, bytes).and_then(|frame| {
            self.learn(now, ingress, frame.vlan, address(bytes, 6))?;
            Ok((self.receivers(ingress, frame.vlan, address(bytes, 0))?, frame))
        });
        let mut outcome = Outcome::default();
        match receivers {
            Err(reason) => outcome.dropped.push((ingress, Direction::Ingress, reason)),
            Ok((receivers, frame)) => {
                for egress in receivers {
                    match self.send(egress, &frame) {
                        Ok(bytes) => outcome.sent.push((egress, bytes)),
                        Err(reason) => outcome.dropped.push((egress, Direction::Egress, reason)),
                    }
                }
            }
        }
        outcome
    }

    /// Well-formed, in a VLAN of the port, not for the bridge itself, from an address the port may use.
    fn admit(&mut self, ingress: PortId, bytes: &[u8]) -> Result<Admitted, DropReason> {
        if bytes.len() < 14 {
            return Err(DropReason::Malformed);
        }
        let is_tagged = bytes[12..14] == [0x81, 0x00];
        if is_tagged && bytes.len() < 18 {
            return Err(DropReason::Malformed);
        }
        let (control, untagged) = match is_tagged {
            true => (u16::from_be_bytes([bytes[14], bytes[15]]), [&bytes[..12], &bytes[16..]].concat()),
            false => (0, bytes.to_vec()),
        };
        let port = &self.ports[ingress.index()];
        let vlan = match (&port.vlan, control & 0x0fff) {
            (VlanMode::Access(own), 0) => Some(*own),
            (VlanMode::Access(_), _) => None,
            (VlanMode::Trunk { native, .. }, 0) => *native,
            (VlanMode::Trunk { native: Some(native), .. }, vid) if native.get() == vid => None,
            (VlanMode::Trunk { .. }, vid) => vlans(&port.vlan).into_iter().find(|vlan| vlan.get() == vid),
        };
        let vlan = vlan.ok_or(DropReason::VlanNotAllowed)?;
        if bytes[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && bytes[5] <= 0x0f {
            return Err(DropReason::LinkLocalControl);
        }
        let source = address(bytes, 6);
        if source.0[0] % 2 == 1 || source.0 == [0; 6] {
            return Err(DropReason::InvalidSource);
        }
        let is_own = match &port.sources {
            SourcePolicy::Pinned(macs) => macs.contains(&source),
            SourcePolicy::FirstSeen => self.first_seen[ingress.index()].is_none_or(|first| first == source),
            SourcePolicy::Learn { .. } => true,
        };
        match is_own {
            true => Ok(Admitted { vlan, priority: control & 0xf000, untagged }),
            false => Err(DropReason::ForgedSource),
        }
    }

    fn learn(&mut self, now: Instant, port: PortId, vlan: VlanId, mac: MacAddr) -> Result<(), DropReason> {
        let known = self.entries.iter().position(|entry| entry.vlan == vlan && entry.mac == mac);
        let is_fixed = known.is_some_and(|at| !is_learned(&self.entries[at]));
        if let (Some(at), true) = (known, is_fixed) {
            return if self.entries[at].port == port { Ok(()) } else { Err(DropReason::ForgedSource) };
        }
        let (limit, beyond) = match self.ports[port.index()].sources {
            // Its addresses are all in the list already.
            SourcePolicy::Pinned(_) => return Ok(()),
            SourcePolicy::FirstSeen => {
                if known.is_some_and(|at| self.entries[at].port != port) {
                    return Err(DropReason::ForgedSource);
                }
                self.first_seen[port.index()] = Some(mac);
                known.map(|at| self.entries.remove(at));
                self.entries.push(Entry { vlan, mac, port, kind: Kind::FirstSeen });
                return Ok(());
            }
            SourcePolicy::Learn { limit, beyond } => (limit, beyond),
        };
        let learned = Entry { vlan, mac, port, kind: Kind::Learned { last_used: now } };
        if let Some(at) = known.filter(|at| self.entries[*at].port == port) {
            self.entries[at] = learned;
            return Ok(());
        }
        let has = self.entries.iter().filter(|entry| is_learned(entry) && entry.port == port).count();
        if has >= limit {
            return match beyond {
                BeyondLimit::Drop => Err(DropReason::LearnLimit),
                BeyondLimit::Forward => Ok(()),
            };
        }
        let learned_everywhere = self.entries.iter().filter(|entry| is_learned(entry)).count();
        match known {
            Some(at) => self.entries[at] = learned,
            None if learned_everywhere < self.fdb.capacity => self.entries.push(learned),
            // A full table forwards and does not learn.
            None => {}
        }
        Ok(())
    }

    fn receivers(&self, ingress: PortId, vlan: VlanId, to: MacAddr) -> Result<Vec<PortId>, DropReason> {
        let is_group = to.0[0] % 2 == 1;
        let isolated = |egress: PortId| {
            let (a, b) = (&self.ports[ingress.index()], &self.ports[egress.index()]);
            a.isolated && b.isolated && a.group == b.group
        };
        let known = self.entries.iter().find(|entry| entry.vlan == vlan && entry.mac == to);
        match known.filter(|_| !is_group) {
            Some(entry) if entry.port == ingress => Err(DropReason::SamePort),
            Some(entry) if isolated(entry.port) => Err(DropReason::Isolated),
            Some(entry) => Ok(vec![entry.port]),
            None => {
                let takes = |egress: &PortId| {
                    let port = &self.ports[egress.index()];
                    *egress != ingress
                        && !isolated(*egress)
                        && vlans(&port.vlan).contains(&vlan)
                        && (is_group || port.takes_unknown_unicast)
                };
                let receivers: Vec<_> = (0..self.ports.len()).map(id).filter(takes).collect();
                match (receivers.is_empty(), is_group) {
                    (false, _) => Ok(receivers),
                    (true, true) => Err(DropReason::NoReceiver),
                    (true, false) => Err(DropReason::UnknownUnicast),
                }
            }
        }
    }

    /// The frame as it leaves by `egress`: untagged, or with the tag of its VLAN and the priority it came with.
    fn send(&self, egress: PortId, frame: &Admitted) -> Result<Vec<u8>, DropReason> {
        if !self.is_up[egress.index()] {
            return Err(DropReason::PortDown);
        }
        let bytes = match &self.ports[egress.index()].vlan {
            VlanMode::Trunk { native, .. } if *native != Some(frame.vlan) => {
                let tag = [[0x81, 0x00], (frame.priority | frame.vlan.get()).to_be_bytes()].concat();
                [&frame.untagged[..12], &tag, &frame.untagged[12..]].concat()
            }
            // A tag behind the one that was taken off would be taken for the frame's own.
            VlanMode::Trunk { .. } if matches!(frame.untagged[12..14], [0x81, 0x00] | [0x88, 0xa8]) => {
                return Err(DropReason::VlanNotAllowed);
            }
            _ => frame.untagged.clone(),
        };
        // The packet, its Ethernet header, a tag.
        if bytes.len() > self.mtu + 14 + 4 { Err(DropReason::MtuExceeded) } else { Ok(bytes) }
    }
}

fn is_learned(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Learned { .. })
}

fn vlans(mode: &VlanMode) -> Vec<VlanId> {
    match mode {
        VlanMode::Access(own) => vec![*own],
        VlanMode::Trunk { allowed, .. } => allowed.iter().collect(),
    }
}

fn address(bytes: &[u8], at: usize) -> MacAddr {
    MacAddr(bytes[at..at + 6].try_into().expect("six bytes"))
}

fn id(index: usize) -> PortId {
    PortId(u16::try_from(index).expect("few ports"))
}
