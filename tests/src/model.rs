//! The switch as its documentation describes it, in the most naive way: one frame at a time, lists instead of tables, no
//! batches, no queues, no workers. The real one must give the same answers.

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::pipeline::lookup::ALLOWED_LIMIT;
use lockgate_dataplane::state::security::Admin;
use lockgate_dataplane::state::{BeyondLimit, FdbSettings, PortState, SourcePolicy, VlanMode};
use lockgate_dataplane::table::fdb::flap::{FLAP_MOVES, FLAP_WINDOW};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::verdict::DropReason;

/// The naive switch.
#[derive(Debug)]
pub struct ModelSwitch {
    ports: Vec<PortState>,
    fdb: FdbSettings,
    mtu: usize,
    is_up: Vec<bool>,
    own: Vec<Option<(MacAddr, Instant)>>,
    disabled: Vec<bool>,
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
    Shown,
    Learned { last_used: Instant, moves: Vec<Instant> },
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
            own: vec![None; ports.len()],
            disabled: vec![false; ports.len()],
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
        self.own[port.index()] = None;
        self.entries.retain(|entry| entry.port != port || entry.kind == Kind::Configured);
    }

    /// A frame comes in.
    pub fn receive(&mut self, now: Instant, ingress: PortId, bytes: &[u8]) -> Outcome {
        let age = self.fdb.age;
        self.entries.retain(|entry| match entry.kind {
            Kind::Learned { last_used, .. } => now.saturating_since(last_used) < age,
            Kind::Configured | Kind::Shown => true,
        });
        let receivers = self.admit(now, ingress, bytes).and_then(|frame| {
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
    fn admit(&mut self, now: Instant, ingress: PortId, bytes: &[u8]) -> Result<Admitted, DropReason> {
        if self.ports[ingress.index()].security.admin == Admin::Down {
            return Err(DropReason::AdminDown);
        }
        if self.disabled[ingress.index()] {
            return Err(DropReason::BpduGuard);
        }
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
        let is_tree =
            bytes[..6] == [0x01, 0x80, 0xc2, 0, 0, 0] || bytes[..6] == [0x01, 0, 0x0c, 0xcc, 0xcc, 0xcd];
        if is_tree && port.security.bpdu_guard {
            self.disabled[ingress.index()] = true;
            self.entries.retain(|entry| entry.port != ingress || entry.kind == Kind::Configured);
            return Err(DropReason::BpduGuard);
        }
        let is_link_local = bytes[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && bytes[5] <= 0x0f;
        if is_link_local && !port.security.link_local.contains(address(bytes, 0)) {
            return Err(DropReason::LinkLocalControl);
        }
        let source = address(bytes, 6);
        if source.0[0] % 2 == 1 || source.0 == [0; 6] {
            return Err(DropReason::InvalidSource);
        }
        match self.foreign(now, ingress, source) && !port.security.forged_transmits.accepts() {
            false => Ok(Admitted { vlan, priority: control & 0xf000, untagged }),
            true => Err(DropReason::ForgedSource),
        }
    }

    /// Whether `source` is none that `port` may have, or may change to.
    fn foreign(&self, now: Instant, port: PortId, source: MacAddr) -> bool {
        let (own, state) = (self.own[port.index()], &self.ports[port.index()]);
        let may_change = own.is_none_or(|(_, since)| now.saturating_since(since) >= Nanos::from_secs(1));
        let is_own = match &state.sources {
            SourcePolicy::Pinned(macs) => macs.contains(&source),
            SourcePolicy::FirstSeen => own.is_none(),
            SourcePolicy::Learn { .. } => true,
        };
        let shows = own.is_some_and(|(mac, _)| mac == source);
        let is_allowed = state.security.allowed.iter().any(|allowed| allowed.matches(source));
        let may_be_new = state.security.mac_changes.accepts() && may_change;
        ![is_own, shows, is_allowed, may_be_new].contains(&true)
    }

    fn learn(&mut self, now: Instant, port: PortId, vlan: VlanId, mac: MacAddr) -> Result<(), DropReason> {
        let state = &self.ports[port.index()];
        let forged = match state.security.forged_transmits.accepts() {
            true => Ok(()),
            false => Err(DropReason::ForgedSource),
        };
        if self.foreign(now, port, mac) {
            return forged;
        }
        let known = self.entries.iter().position(|entry| entry.vlan == vlan && entry.mac == mac);
        let is_fixed = known.is_some_and(|at| !is_learned(&self.entries[at]));
        let is_allowed = state.security.allowed.iter().any(|allowed| allowed.matches(mac));
        let shows = self.own[port.index()].is_some_and(|(own, _)| own == mac);
        let (limit, beyond) = match &state.sources {
            SourcePolicy::Learn { limit, beyond } => (*limit, *beyond),
            // Its addresses are all in the list already.
            SourcePolicy::Pinned(macs) if macs.contains(&mac) => return Ok(()),
            _ if is_allowed && !shows => (ALLOWED_LIMIT, BeyondLimit::Drop),
            _ => {
                if known.is_some_and(|at| self.entries[at].port != port) {
                    return forged;
                }
                if !shows {
                    let former = self.own[port.index()].replace((mac, now));
                    self.entries.retain(|entry| {
                        entry.port != port
                            || entry.kind != Kind::Shown
                            || former.is_none_or(|(former, _)| entry.mac != former)
                    });
                }
                self.entries.retain(|entry| entry.vlan != vlan || entry.mac != mac);
                self.entries.push(Entry { vlan, mac, port, kind: Kind::Shown });
                return Ok(());
            }
        };
        if let (Some(at), true) = (known, is_fixed) {
            return if self.entries[at].port == port { Ok(()) } else { Err(DropReason::ForgedSource) };
        }
        if let Some(at) = known.filter(|at| self.entries[*at].port == port) {
            if let Kind::Learned { last_used, .. } = &mut self.entries[at].kind {
                *last_used = now;
            }
            return Ok(());
        }
        let has = |port| self.entries.iter().filter(|entry| is_learned(entry) && entry.port == port).count();
        if has(port) >= limit {
            return match beyond {
                BeyondLimit::Drop => Err(DropReason::LearnLimit),
                BeyondLimit::Forward => Ok(()),
            };
        }
        if let Some(at) = known {
            let entry = &mut self.entries[at];
            let Kind::Learned { last_used, moves } = &mut entry.kind else { return Ok(()) };
            let is_over = moves.first().is_none_or(|since| now.saturating_since(*since) >= FLAP_WINDOW);
            if is_over {
                moves.clear();
            }
            if moves.len() < usize::from(FLAP_MOVES) {
                moves.push(now);
                (*last_used, entry.port) = (now, port);
            }
            return Ok(());
        }
        // A full table forwards and does not learn. Half of it is kept for the ports that learn.
        let learners = (0..self.ports.len()).filter(|port| self.limit(id(*port)) > 0).count();
        let share = |port| (self.fdb.capacity / 2 / learners.max(1)).min(self.limit(port));
        let unused = |port| share(port).saturating_sub(has(port));
        let kept: usize = (0..self.ports.len()).map(id).filter(|other| *other != port).map(unused).sum();
        let all = self.entries.iter().filter(|entry| is_learned(entry)).count();
        if all < self.fdb.capacity && (unused(port) > 0 || all + kept < self.fdb.capacity) {
            let kind = Kind::Learned { last_used: now, moves: Vec::new() };
            self.entries.push(Entry { vlan, mac, port, kind });
        }
        Ok(())
    }

    fn limit(&self, port: PortId) -> usize {
        let port = &self.ports[port.index()];
        match port.sources {
            SourcePolicy::Learn { limit, .. } => limit,
            _ if port.security.allowed.is_empty() => 0,
            _ => ALLOWED_LIMIT,
        }
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
            Some(entry) => {
                let overhears = |egress: &PortId| {
                    let port = &self.ports[egress.index()];
                    ![ingress, entry.port].contains(egress)
                        && port.security.promiscuous.accepts()
                        && !isolated(*egress)
                        && vlans(&port.vlan).contains(&vlan)
                };
                Ok((0..self.ports.len()).map(id).filter(overhears).chain([entry.port]).collect())
            }
            None => {
                let takes = |egress: &PortId| {
                    let port = &self.ports[egress.index()];
                    *egress != ingress
                        && !isolated(*egress)
                        && vlans(&port.vlan).contains(&vlan)
                        && (is_group || port.takes_unknown_unicast || port.security.promiscuous.accepts())
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
        let state = &self.ports[egress.index()];
        if !self.is_up[egress.index()] || self.disabled[egress.index()] || state.security.admin == Admin::Down
        {
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
