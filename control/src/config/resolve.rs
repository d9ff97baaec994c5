//! From what was written to the [`Topology`]: names become ids, defaults are filled in, ports take over what their group
//! says, and what only the whole file can show is checked.

use std::collections::HashMap;

use lockgate_dataplane::id::{Direction, GroupId};

use super::classes::ClassesConfig;
use super::diagnostic::Diagnostics;
use super::groups::{GroupConfig, LearnConfig};
use super::interface::DEFAULT_MTU_BYTES;
use super::nearest::nearest;
use super::ports::{KindConfig, PortConfig};
use super::reader::Reader;
use super::settings::SettingsConfig;
use super::shaping::ShapingConfig;
use super::unique;
use crate::topology::{FarEnd, Learn, Origin, Port, PortGroup, PortKind, PortShaping, Topology, Workers};

/// Names that a message lists before it leaves the rest to the file.
const NAMES_LISTED: usize = 20;

/// Everything the file says. Entries that could not be read are absent and already reported.
#[derive(Clone, Debug, Default)]
pub struct TopologyConfig {
    /// `switch`, `metrics` and `api`.
    pub settings: SettingsConfig,
    /// `classes`.
    pub classes: ClassesConfig,
    /// `port_groups`.
    pub groups: Vec<GroupConfig>,
    /// `ports`.
    pub ports: Vec<PortConfig>,
}

/// A port with the group it names, if that exists.
#[derive(Clone, Copy)]
pub struct Member<'c> {
    /// The port.
    pub port: &'c PortConfig,
    /// The group and its index.
    pub group: Option<(GroupId, &'c GroupConfig)>,
}

impl TopologyConfig {
    /// Checks the whole and builds the topology. The answer is complete only if no error was reported.
    pub fn resolve(&self, diagnostics: &mut Diagnostics) -> Topology {
        let by_name: HashMap<&str, (GroupId, &GroupConfig)> = (0..)
            .map(GroupId)
            .zip(&self.groups)
            .map(|(id, group)| (group.name.value.as_str(), (id, group)))
            .collect();
        let members: Vec<Member<'_>> = self
            .ports
            .iter()
            .map(|port| Member { port, group: self.find_group(port, &by_name, diagnostics) })
            .collect();
        unique::check(&members, diagnostics);
        self.check_bursts(&members, diagnostics);
        self.check_mtus(&members, diagnostics);
        self.check_workers(diagnostics);
        let (class_names, classes) = self.classes.resolve();
        Topology {
            name: self.settings.name.clone(),
            workers: self.settings.workers.map_or(Workers::Auto, |workers| workers.value),
            fdb: self.settings.fdb,
            metrics_listen: self.settings.metrics_listen,
            api_socket: self.settings.api_socket.clone(),
            class_names,
            classes,
            groups: self.groups.iter().filter_map(resolve_group).collect(),
            ports: members.iter().filter_map(|member| member.resolve()).collect(),
        }
    }

    fn find_group<'c>(
        &self,
        port: &PortConfig,
        by_name: &HashMap<&str, (GroupId, &'c GroupConfig)>,
        diagnostics: &mut Diagnostics,
    ) -> Option<(GroupId, &'c GroupConfig)> {
        let wanted = port.group.as_ref()?;
        let found = by_name.get(wanted.value.as_str()).copied();
        if found.is_none() {
            let names = || self.groups.iter().map(|group| group.name.value.as_str());
            let mut reader = Reader::new(diagnostics, format!("port `{}`", port.name.value));
            let diagnostic = reader.error(wanted.place, format!("there is no port group `{}`", wanted.value));
            diagnostic.help = Some(match nearest(&wanted.value, names()) {
                Some(meant) => format!("perhaps `{meant}` was meant"),
                None if self.groups.is_empty() => "describe it under `port_groups`".to_owned(),
                None => {
                    let (first, rest): (Vec<_>, _) =
                        (names().take(NAMES_LISTED).collect(), names().skip(NAMES_LISTED));
                    let more = if rest.count() > 0 { ", …" } else { "" };
                    format!("the groups are {}{more}", first.join(", "))
                }
            });
        }
        found
    }

    /// Every burst must hold the largest frame of the ports it is for; a group's is reported once, for its largest MTU.
    fn check_bursts(&self, members: &[Member<'_>], diagnostics: &mut Diagnostics) {
        for (id, group) in (0..).map(GroupId).zip(&self.groups) {
            for direction in Direction::ALL {
                let Some(shaping) = group.shaping.get(direction) else { continue };
                let inherits = |member: &&Member<'_>| member.port.shaping.get(direction).is_none();
                let largest =
                    members_of(members, id).filter(inherits).max_by_key(|member| member.mtu_bytes());
                let mtu_bytes = largest.map_or(DEFAULT_MTU_BYTES, Member::mtu_bytes);
                let whose = largest
                    .map_or("a port".to_owned(), |member| format!("port `{}`", member.port.name.value));
                let owner = format!("port group `{}`, shaping, {direction}", group.name.value);
                shaping.check_burst(&mut Reader::new(diagnostics, owner), mtu_bytes, &whose);
            }
        }
        for member in members {
            for direction in Direction::ALL {
                if let Some(shaping) = member.port.shaping.get(direction) {
                    let owner = format!("port `{}`, shaping, {direction}", member.port.name.value);
                    shaping.check_burst(&mut Reader::new(diagnostics, owner), member.mtu_bytes(), "the port");
                }
            }
        }
    }

    /// Ports of one group that differ in MTU lose the larger frames, which is seldom meant.
    fn check_mtus(&self, members: &[Member<'_>], diagnostics: &mut Diagnostics) {
        for (id, group) in (0..).map(GroupId).zip(&self.groups) {
            let made = members_of(members, id)
                .filter_map(|member| Some((member.port.interface()?.mtu_bytes, member.port)));
            let mtus: Vec<_> = made.collect();
            let (smallest, largest) =
                (mtus.iter().min_by_key(|(mtu, _)| *mtu), mtus.iter().max_by_key(|(mtu, _)| *mtu));
            let (Some((small, small_port)), Some((large, large_port))) = (smallest, largest) else {
                continue;
            };
            if small < large {
                Reader::new(diagnostics, format!("port group `{}`", group.name.value))
                    .warning(
                        small_port.name.place,
                        format!("its ports have different MTUs, {small} and {large}"),
                    )
                    .label(format!("MTU {small}"))
                    .related(large_port.name.place, format!("MTU {large}"))
                    .help("a frame that is larger than the egress port's MTU is dropped as `mtu_exceeded`");
            }
        }
    }

    fn check_workers(&self, diagnostics: &mut Diagnostics) {
        let Some(workers) = self.settings.workers else { return };
        if let Workers::Count(count) = workers.value
            && (1..usize::from(count)).contains(&self.ports.len())
        {
            Reader::new(diagnostics, "switch")
                .warning(workers.place, format!("{count} workers for {} ports", self.ports.len()))
                .help("a port has one worker: the rest have nothing to do");
        }
    }
}

impl Member<'_> {
    /// MTU of the port's interface; the usual one where the interface is not Lockgate's.
    fn mtu_bytes(&self) -> u32 {
        self.port.interface().map_or(DEFAULT_MTU_BYTES, |interface| interface.mtu_bytes)
    }

    fn resolve(&self) -> Option<Port> {
        let (group_id, group) = self.group?;
        let kind = match self.port.kind.as_ref()? {
            KindConfig::Netdev { interface, steering } => {
                PortKind::Netdev { interface: interface.value.clone(), steering: *steering }
            }
            KindConfig::Veth(far_end, steering) => PortKind::Veth(
                FarEnd {
                    netns: far_end.netns.clone(),
                    interface: far_end.interface.resolve(&self.port.macs),
                },
                *steering,
            ),
            KindConfig::Tap(far_end) => PortKind::Tap(FarEnd {
                netns: far_end.netns.clone(),
                interface: far_end.interface.resolve(&self.port.macs),
            }),
            KindConfig::Internal(interface) => PortKind::Internal { interface: interface.resolve(&[]) },
        };
        Some(Port {
            name: self.port.name.value.clone(),
            group: group_id,
            kind,
            macs: self.port.macs.iter().map(|mac| mac.value).collect(),
            learn: self.learn(),
            security: self.port.security.resolve(&group.security),
            ingress: self.shaping(Direction::Ingress),
            egress: self.shaping(Direction::Egress),
        })
    }

    /// The port's own word; else its group's, except where the port's addresses are given or its own.
    fn learn(&self) -> Option<Learn> {
        let of_group = self.group.map(|(_, group)| group.learn).unwrap_or_default();
        let pinned = !self.port.macs.is_empty() || matches!(self.port.kind, Some(KindConfig::Internal(_)));
        match (self.port.learn, of_group) {
            (LearnConfig::Learns(learn), _) => Some(learn),
            (LearnConfig::Unset, LearnConfig::Learns(learn)) if !pinned => Some(learn),
            _ => None,
        }
    }

    /// The port's own shaping; else its group's.
    fn shaping(&self, direction: Direction) -> Option<PortShaping> {
        let own = self.port.shaping.get(direction).map(|shaping| (shaping, Origin::Port));
        let of_group = self.group.and_then(|(_, group)| group.shaping.get(direction));
        let (shaping, origin): (&ShapingConfig, Origin) =
            own.or(of_group.map(|shaping| (shaping, Origin::Group)))?;
        Some(PortShaping { shaping: shaping.resolve(self.mtu_bytes())?, origin })
    }
}

fn members_of<'m, 'c>(members: &'m [Member<'c>], group: GroupId) -> impl Iterator<Item = &'m Member<'c>> {
    members.iter().filter(move |member| member.group.is_some_and(|(own, _)| own == group))
}

fn resolve_group(group: &GroupConfig) -> Option<PortGroup> {
    Some(PortGroup { name: group.name.value.clone(), vlan: group.vlan.clone()?, isolated: group.isolated })
}

#[cfg(test)]
mod tests {
    use lockgate_dataplane::state::{BeyondLimit, VlanMode};
    use lockgate_dataplane::units::Bytes;

    use super::*;
    use crate::config;

    fn topology(groups: &str, ports: &str) -> Topology {
        let text = format!("version: 1\nport_groups:\n{groups}\nports:\n{ports}\n");
        config::parse("test.yaml", &text).unwrap_or_else(|report| panic!("{report}")).topology
    }

    #[test]
    fn a_native_vlan_passes_although_the_list_leaves_it_out() {
        let topology = topology("  g: { trunk: [10, 20-22], native: 1 }", "  p: { group: g, netdev: a }");
        let VlanMode::Trunk { allowed, native } = &topology.groups[0].vlan else { panic!("a trunk") };
        assert_eq!(
            (format!("{allowed:?}"), native.map(|vlan| vlan.get())),
            ("1, 10, 20-22".to_owned(), Some(1))
        );
    }

    #[test]
    fn a_port_overrides_its_group_one_direction_at_a_time() {
        let group =
            "  g: { shaping: { port: { ingress: { average: 1 Mbit/s }, egress: { average: 2 Mbit/s } } } }";
        let port =
            topology(group, "  p: { group: g, netdev: a, shaping: { egress: { average: 3 Mbit/s } } }")
                .ports
                .remove(0);
        let set = |shaping: Option<PortShaping>| shaping.map(|set| (set.shaping.average.get(), set.origin));
        assert_eq!(set(port.ingress), Some((1_000_000, Origin::Group)));
        assert_eq!(set(port.egress), Some((3_000_000, Origin::Port)));
    }

    #[test]
    fn a_groups_learning_does_not_reach_ports_whose_addresses_are_known() {
        let ports = r#"
  plain: { group: g, netdev: a }
  own: { group: g, netdev: b, learn: { limit: 3, beyond: forward } }
  off: { group: g, netdev: c, learn: false }
  listed: { group: g, netdev: d, mac: "52:54:00:00:00:01" }
  host: { group: g, internal: { interface: lg0 } }"#;
        let learn: Vec<_> =
            topology("  g: { learn: 8 }", ports).ports.iter().map(|port| port.learn).collect();
        let learns = |limit, beyond| Some(Learn { limit, beyond });
        assert_eq!(learn, [learns(8, BeyondLimit::Drop), learns(3, BeyondLimit::Forward), None, None, None]);
    }

    #[test]
    fn a_default_burst_is_10_ms_at_least_64_kib_and_one_frame() {
        let burst = |average: &str, mtu: u32| {
            let group = format!("  g: {{ shaping: {{ port: {{ ingress: {{ average: {average} }} }} }} }}");
            let port = format!("  p: {{ group: g, tap: {{ netns: n, interface: eth0, mtu: {mtu} }} }}");
            topology(&group, &port).ports[0].ingress.map(|set| set.shaping.burst)
        };
        assert_eq!(burst("1 Gbit/s", 1500), Some(Bytes::new(1_250_000)));
        assert_eq!(burst("10 Mbit/s", 1500), Some(Bytes::from_kib(64)));
        assert_eq!(burst("10 Mbit/s", 65_535), Some(Bytes::new(65_553)));
    }

    #[test]
    fn a_burst_of_exactly_the_largest_frame_is_taken() {
        let group = "  g: { shaping: { port: { ingress: { average: 1 Mbit/s, burst: 1518 B } } } }";
        topology(group, "  p: { group: g, netdev: a }");
        let group =
            "  g: { shaping: { port: { ingress: { average: 1 Mbit/s, burst: 1542 B, overhead: 24 B } } } }";
        topology(group, "  p: { group: g, netdev: a }");
    }

    #[test]
    fn an_interface_gets_the_first_address_its_port_may_send_from() {
        let port = r#"  p: { group: g, mac: ["52:54:00:00:00:01", "52:54:00:00:00:02"], tap: { netns: n, interface: eth0 } }"#;
        let PortKind::Tap(far_end) = topology("  g: {}", port).ports.remove(0).kind else { panic!("a tap") };
        assert_eq!(far_end.interface.mac.map(|mac| mac.to_string()).as_deref(), Some("52:54:00:00:00:01"));
    }

    #[test]
    fn one_address_in_two_vlans_is_two_stations() {
        let ports = r#"
  p: { group: g, netdev: a, mac: "52:54:00:00:00:01" }
  q: { group: h, netdev: b, mac: "52:54:00:00:00:01" }"#;
        assert_eq!(topology("  g: { vlan: 10 }\n  h: { vlan: 20 }", ports).ports.len(), 2);
    }
}
