//! `security:`, `storm:`, `link_local:` and `bpdu_guard:` of a group or a port. Each key of a port overrides the same key
//! of its group.

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::state::security::{Admin, Decision, LinkLocal, MacPattern, Security, StormLimits};
use lockgate_dataplane::units::FramesPerSecond;

use super::reader::{Fields, Reader, Schema};
use super::scalar::{self, Fault, Scalar};
use super::units;

const SECURITY: Schema =
    Schema { known: &["promiscuous", "mac_changes", "forged_transmits", "allowed_macs"], later: &[] };
const STORM: Schema = Schema { known: &["broadcast", "multicast", "unknown_unicast"], later: &[] };
const LINK_LOCAL: Schema = Schema { known: &["forward"], later: &[] };
const DECISIONS: [(&str, Decision); 2] = [("reject", Decision::Reject), ("accept", Decision::Accept)];
const PROTOCOLS: [(&str, LinkLocal); 4] = [
    ("stp", LinkLocal::STP),
    ("lacp", LinkLocal::LACP),
    ("eapol", LinkLocal::EAPOL),
    ("lldp", LinkLocal::LLDP),
];
const ADMINS: [(&str, Admin); 2] = [("up", Admin::Up), ("down", Admin::Down)];

/// What was written; `None` where nothing was.
#[derive(Clone, Debug, Default)]
pub struct SecurityConfig {
    promiscuous: Option<Decision>,
    mac_changes: Option<Decision>,
    forged_transmits: Option<Decision>,
    allowed: Option<Vec<MacPattern>>,
    link_local: Option<LinkLocal>,
    bpdu_guard: Option<bool>,
    storm: StormLimits,
    admin: Option<Admin>,
}

impl SecurityConfig {
    /// Reads the keys of a group or port that are about security.
    pub fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let mut config = Self::default();
        if let Some(field) = fields.get("security") {
            config.read_switches(&mut reader.part("security"), field);
        }
        if let Some(field) = fields.get("storm") {
            let mut reader = reader.part("storm");
            let fields = reader.fields(field, &STORM).unwrap_or_default();
            let mut rate = |name| -> Option<FramesPerSecond> {
                fields
                    .get(name)
                    .and_then(|field| reader.value(field, units::frame_rate))
                    .map(|rate| rate.value)
            };
            config.storm = StormLimits {
                broadcast: rate("broadcast"),
                multicast: rate("multicast"),
                unknown_unicast: rate("unknown_unicast"),
            };
        }
        if let Some(field) = fields.get("link_local") {
            let mut reader = reader.part("link_local");
            let fields = reader.fields(field, &LINK_LOCAL).unwrap_or_default();
            if fields.lacks("forward") {
                reader
                    .error(field.key, "there is no `forward`")
                    .help("list what is forwarded, such as `link_local: { forward: [lldp] }`");
            }
            let forward = fields.get("forward").map(|field| reader.one_or_many(field, protocol));
            config.link_local = forward.map(|protocols| {
                protocols.iter().fold(LinkLocal::default(), |all, protocol| all.with(protocol.value))
            });
        }
        config.bpdu_guard = fields
            .get("bpdu_guard")
            .and_then(|field| reader.value(field, scalar::boolean))
            .map(|guard| guard.value);
        config.admin = fields
            .get("admin")
            .and_then(|field| reader.value(field, scalar::word(&ADMINS)))
            .map(|admin| admin.value);
        config
    }

    fn read_switches(&mut self, reader: &mut Reader<'_>, field: super::reader::Field<'_>) {
        let fields = reader.fields(field, &SECURITY).unwrap_or_default();
        let mut decision = |name| {
            let decision = fields.get(name).and_then(|field| reader.value(field, scalar::word(&DECISIONS)));
            decision.map(|decision| decision.value)
        };
        self.promiscuous = decision("promiscuous");
        self.mac_changes = decision("mac_changes");
        self.forged_transmits = decision("forged_transmits");
        self.allowed = fields.get("allowed_macs").map(|field| {
            reader.one_or_many(field, mac_pattern).into_iter().map(|pattern| pattern.value).collect()
        });
    }

    /// What holds for a port that says this in a group that says `group`.
    pub fn resolve(&self, group: &Self) -> Security {
        let allowed = self.allowed.as_ref().or(group.allowed.as_ref());
        Security {
            promiscuous: self.promiscuous.or(group.promiscuous).unwrap_or_default(),
            mac_changes: self.mac_changes.or(group.mac_changes).unwrap_or_default(),
            forged_transmits: self.forged_transmits.or(group.forged_transmits).unwrap_or_default(),
            allowed: allowed.cloned().unwrap_or_default().into(),
            link_local: self.link_local.or(group.link_local).unwrap_or_default(),
            bpdu_guard: self.bpdu_guard.or(group.bpdu_guard).unwrap_or_default(),
            storm: StormLimits {
                broadcast: self.storm.broadcast.or(group.storm.broadcast),
                multicast: self.storm.multicast.or(group.storm.multicast),
                unknown_unicast: self.storm.unknown_unicast.or(group.storm.unknown_unicast),
            },
            admin: self.admin.unwrap_or_default(),
        }
    }
}

fn protocol(scalar: &Scalar) -> Result<LinkLocal, Fault> {
    if scalar.text == "pause" {
        return Err(Fault::new("`pause` frames are never forwarded")
            .help("they stop the device they reach; flow control ends at each link"));
    }
    scalar::word(&PROTOCOLS)(scalar)
}

/// An address, or one whose last octets are `xx`.
fn mac_pattern(scalar: &Scalar) -> Result<MacPattern, Fault> {
    if !scalar.text.to_ascii_lowercase().ends_with(":xx") {
        let MacAddr(octets) = scalar::mac(scalar)?;
        return MacAddr(octets).to_string().parse().map_err(|_| not_a_pattern(scalar));
    }
    match scalar.text.parse::<MacPattern>() {
        Ok(pattern) if !pattern.example().is_group() => Ok(pattern),
        Ok(_) => {
            Err(Fault::new(format!("`{}` are group addresses: no station can send from them", scalar.text))
                .help("the first octet of a station's address is even"))
        }
        Err(_) => Err(not_a_pattern(scalar)),
    }
}

fn not_a_pattern(scalar: &Scalar) -> Fault {
    Fault::new(format!("`{}` is not a MAC address with free octets at its end", scalar.text))
        .help("write at least three octets and `xx` for the rest, as in \"00:00:5e:00:01:xx\"")
}

#[cfg(test)]
mod tests {
    use lockgate_dataplane::state::security::Security;

    use crate::config;

    fn security(group: &str, port: &str) -> Security {
        let text = format!(
            "version: 1\nport_groups:\n  g: {{ {group} }}\nports:\n  p: {{ group: g, netdev: a{port} }}\n"
        );
        let topology = config::parse("test.yaml", &text).unwrap_or_else(|report| panic!("{report}")).topology;
        topology.ports[0].security.clone()
    }

    #[test]
    fn everything_is_rejected_unless_the_file_says_otherwise() {
        assert_eq!(security("", ""), Security::default());
        let all = "security: { promiscuous: reject, mac_changes: reject, forged_transmits: reject }";
        assert_eq!(security(all, ""), Security::default());
    }

    #[test]
    fn a_port_overrides_its_group_key_by_key() {
        let group = r#"security: { promiscuous: accept, mac_changes: accept, allowed_macs: "00:00:5e:00:01:xx" },
            storm: { broadcast: 1000 frames/s, multicast: 2 kframes/s }, link_local: { forward: [lldp, stp] }, bpdu_guard: true"#;
        let port = ", security: { mac_changes: reject }, storm: { multicast: 5 frames/s }, link_local: { forward: lacp }";
        let is = security(group, port);
        assert_eq!((is.promiscuous.name(), is.mac_changes.name()), ("accept", "reject"));
        assert_eq!((is.storm.broadcast.unwrap().get(), is.storm.multicast.unwrap().get()), (1000, 5));
        assert_eq!(is.storm.unknown_unicast, None);
        let to = |last| lockgate_dataplane::frame::mac::MacAddr([1, 0x80, 0xc2, 0, 0, last]);
        assert_eq!([0, 2, 0xe].map(|last| is.link_local.contains(to(last))), [false, true, false]);
        assert!(is.bpdu_guard && is.allowed.len() == 1);
    }
}
