//! `ports:` each with its group and what it is: an interface that exists, or one that Lockgate makes.

use lockgate_dataplane::frame::mac::MacAddr;

use super::diagnostic::{Diagnostics, Located, Place};
use super::groups::{LearnConfig, read_learn};
use super::interface::{FarEndConfig, InterfaceConfig, read_far_end, read_internal};
use super::reader::{Field, Fields, Reader, Schema};
use super::scalar::{self, Fault, Scalar};
use super::security::SecurityConfig;
use super::shaping::{self, DirectionsConfig};
use crate::topology::Steering;

const PORT: Schema = Schema {
    known: &[
        "group",
        "netdev",
        "veth",
        "tap",
        "internal",
        "steering",
        "mac",
        "learn",
        "shaping",
        "security",
        "storm",
        "link_local",
        "bpdu_guard",
        "admin",
    ],
    later: &["vhost_user", "shares", "adopt"],
};
const KINDS: [&str; 4] = ["netdev", "veth", "tap", "internal"];

/// What was written for a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Its name.
    pub name: Located<String>,
    /// The name of its group.
    pub group: Option<Located<String>>,
    /// What it is; `None` if that could not be read.
    pub kind: Option<KindConfig>,
    /// Addresses it may send from.
    pub macs: Vec<Located<MacAddr>>,
    /// Learning, if not as its group says.
    pub learn: LearnConfig,
    /// Shaping that overrides its group's.
    pub shaping: DirectionsConfig,
    /// Security that overrides its group's.
    pub security: SecurityConfig,
}

/// What a port is.
#[derive(Clone, Debug)]
pub enum KindConfig {
    /// An interface that exists.
    Netdev {
        /// Its name.
        interface: Located<String>,
        /// How frames reach the switch.
        steering: Steering,
    },
    /// A veth pair.
    Veth(FarEndConfig, Steering),
    /// A tap in another namespace.
    Tap(FarEndConfig),
    /// A tap in the daemon's namespace.
    Internal(InterfaceConfig),
}

/// Reads `ports:`.
pub fn read_ports(diagnostics: &mut Diagnostics, field: Field<'_>) -> Vec<PortConfig> {
    let entries = Reader::new(diagnostics, "ports").entries(field, "port");
    let mut read = |(name, field): (Located<String>, Field<'_>)| {
        PortConfig::read(&mut Reader::new(diagnostics, format!("port `{}`", name.value)), name, field)
    };
    entries.into_iter().filter_map(&mut read).collect()
}

impl PortConfig {
    fn read(reader: &mut Reader<'_>, name: Located<String>, field: Field<'_>) -> Option<Self> {
        let fields = reader.fields(field, &PORT)?;
        if fields.lacks("group") {
            reader
                .error(name.place, "there is no `group`")
                .help("add `group:` and the name of one of the port_groups");
        }
        let steering = fields.get("steering").map(|field| (field, reader.value(field, steering)));
        let port = Self {
            group: fields.get("group").and_then(|field| reader.value(field, scalar::name)),
            kind: read_kind(reader, name.place, &fields, steering),
            macs: fields.get("mac").map(|field| reader.one_or_many(field, scalar::mac)).unwrap_or_default(),
            learn: read_learn(reader, &fields),
            shaping: fields
                .get("shaping")
                .map(|field| shaping::read_directions(&mut reader.part("shaping"), field))
                .unwrap_or_default(),
            security: SecurityConfig::read(reader, &fields),
            name,
        };
        port.check_addresses(reader, &fields);
        Some(port)
    }

    /// `mac`, `learn` and the interface's own address must not contradict each other.
    fn check_addresses(&self, reader: &mut Reader<'_>, fields: &Fields<'_>) {
        let (mac, learn) = (fields.get("mac"), fields.get("learn"));
        if let (Some(KindConfig::Internal(_)), Some(field)) = (&self.kind, mac.or(learn)) {
            reader
                .error(field.key, format!("an internal port has no `{}`", field.name))
                .help("it sends from its own address only, which `mac` within `internal` sets");
            return;
        }
        if let (Some(mac), Some(learn), LearnConfig::Learns(_)) = (mac, learn, self.learn) {
            reader
                .error(learn.key, "`mac` and `learn` contradict each other")
                .related(mac.key, "these addresses are pinned")
                .help("list the addresses or learn them");
        }
        for (index, mac) in self.macs.iter().enumerate() {
            if let Some(first) = self.macs[..index].iter().find(|first| first.value == mac.value) {
                reader
                    .error(mac.place, format!("{} is listed twice", mac.value))
                    .related(first.place, "first here")
                    .help("keep one of them");
            }
        }
        let own = self.interface().and_then(|interface| interface.mac);
        if let Some(own) =
            own.filter(|own| !self.macs.is_empty() && self.macs.iter().all(|mac| mac.value != own.value))
        {
            reader
                .error(own.place, format!("the interface's address {} is not among the port's", own.value))
                .related(self.macs[0].place, "only these may send")
                .help("every frame of the interface would be dropped as forged: add its address to the port's `mac`");
        }
    }

    /// The interface that Lockgate makes for the port.
    pub fn interface(&self) -> Option<&InterfaceConfig> {
        match self.kind.as_ref()? {
            KindConfig::Netdev { .. } => None,
            KindConfig::Veth(far_end, _) | KindConfig::Tap(far_end) => Some(&far_end.interface),
            KindConfig::Internal(interface) => Some(interface),
        }
    }
}

fn read_kind(
    reader: &mut Reader<'_>,
    name: Place,
    fields: &Fields<'_>,
    steering: Option<(Field<'_>, Option<Located<Steering>>)>,
) -> Option<KindConfig> {
    let written: Vec<_> = KINDS.iter().filter_map(|kind| fields.get(kind)).collect();
    let [kind] = written[..] else {
        let list = KINDS.map(|kind| format!("`{kind}`")).join(", ");
        match written[..] {
            [first, second, ..] => {
                let problem = format!("a port is one thing, not `{}` and `{}`", first.name, second.name);
                reader.error(second.key, problem).related(first.key, "first").help("keep one of them");
            }
            [] if KINDS.iter().chain(&["vhost_user"]).all(|kind| fields.lacks(kind)) => {
                reader.error(name, "it does not say what the port is").help(format!("add one of {list}"));
            }
            _ => {}
        }
        return None;
    };
    if let (Some((field, _)), "tap" | "internal") = (steering, kind.name) {
        reader
            .error(field.key, format!("`{}` and `steering` contradict each other", kind.name))
            .help("Lockgate reads a tap directly; steering is for `netdev` and `veth`");
    }
    let steering =
        steering.and_then(|(_, steering)| steering).map_or(Steering::Auto, |steering| steering.value);
    match kind.name {
        "netdev" => {
            let interface = reader.value(kind, scalar::interface_name)?;
            Some(KindConfig::Netdev { interface, steering })
        }
        "veth" => {
            read_far_end(&mut reader.part("veth"), kind).map(|far_end| KindConfig::Veth(far_end, steering))
        }
        "tap" => read_far_end(&mut reader.part("tap"), kind).map(KindConfig::Tap),
        _ => read_internal(&mut reader.part("internal"), kind).map(KindConfig::Internal),
    }
}

fn steering(scalar: &Scalar) -> Result<Steering, Fault> {
    match scalar.text.as_str() {
        "auto" => Ok(Steering::Auto),
        "tc" => Ok(Steering::Tc),
        "xdp" => Ok(Steering::Xdp),
        other => Err(Fault::new(format!("`{other}` is not a steering")).help("write `auto`, `tc` or `xdp`")),
    }
}
