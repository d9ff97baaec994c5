//! `port_groups:` what the ports of a group have in common.

use std::ops::RangeInclusive;

use lockgate_dataplane::frame::vlan::{VlanId, VlanSet};
use lockgate_dataplane::state::{BeyondLimit, VlanMode};

use super::diagnostic::{Diagnostics, Located};
use super::reader::{Field, Fields, Reader, Schema};
use super::scalar::{self, Fault, Scalar};
use super::security::SecurityConfig;
use super::shaping::{self, DirectionsConfig};
use super::tree::Value;
use crate::topology::Learn;

/// `learn: true`: enough for a nested hypervisor or a router, and safe between tenants.
const DEFAULT_LEARN_LIMIT: usize = 64;
const MAX_LEARN_LIMIT: u64 = 4096;

const GROUP: Schema = Schema {
    known: &[
        "vlan",
        "trunk",
        "native",
        "isolated",
        "shaping",
        "learn",
        "security",
        "storm",
        "link_local",
        "bpdu_guard",
    ],
    later: &["teaming"],
};
const SHAPING: Schema = Schema { known: &["port"], later: &["group"] };
const LEARN: Schema = Schema { known: &["limit", "beyond"], later: &[] };

/// What was written for a group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Its name.
    pub name: Located<String>,
    /// VLANs of its ports; `None` if they could not be read.
    pub vlan: Option<VlanMode>,
    /// Its ports do not reach each other.
    pub isolated: bool,
    /// Shaping of each of its ports.
    pub shaping: DirectionsConfig,
    /// Learning of each of its ports.
    pub learn: LearnConfig,
    /// Security of each of its ports.
    pub security: SecurityConfig,
}

/// What was written for learning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LearnConfig {
    /// Nothing: a port does what its group says, a group pins.
    #[default]
    Unset,
    /// `learn: false`.
    Pinned,
    /// `learn: true`, a number, or limit and what is beyond it.
    Learns(Learn),
}

/// Reads `port_groups:`.
pub fn read_groups(diagnostics: &mut Diagnostics, field: Field<'_>) -> Vec<GroupConfig> {
    let entries = Reader::new(diagnostics, "port_groups").entries(field, "group");
    let mut read = |(name, field): (Located<String>, Field<'_>)| {
        GroupConfig::read(&mut Reader::new(diagnostics, format!("port group `{}`", name.value)), name, field)
    };
    entries.into_iter().map(&mut read).collect()
}

impl GroupConfig {
    fn read(reader: &mut Reader<'_>, name: Located<String>, field: Field<'_>) -> Self {
        let fields = reader.fields(field, &GROUP).unwrap_or_default();
        Self {
            name,
            vlan: read_vlan(reader, &fields),
            isolated: fields
                .get("isolated")
                .and_then(|field| reader.value(field, scalar::boolean))
                .is_some_and(|isolated| isolated.value),
            shaping: fields.get("shaping").map(|field| read_shaping(reader, field)).unwrap_or_default(),
            learn: read_learn(reader, &fields),
            security: SecurityConfig::read(reader, &fields),
        }
    }
}

/// `learn` of a group or port.
pub fn read_learn(reader: &mut Reader<'_>, fields: &Fields<'_>) -> LearnConfig {
    let Some(field) = fields.get("learn") else { return LearnConfig::Unset };
    if !matches!(field.node.value, Value::Mapping(_)) {
        return reader.value(field, learn).map(|learn| learn.value).unwrap_or_default();
    }
    let mut reader = reader.part("learn");
    let Some(fields) = reader.fields(field, &LEARN) else { return LearnConfig::Unset };
    let limit =
        fields.get("limit").and_then(|field| reader.value(field, scalar::integer(1..=MAX_LEARN_LIMIT)));
    const BEYOND: [(&str, BeyondLimit); 2] = [("drop", BeyondLimit::Drop), ("forward", BeyondLimit::Forward)];
    let beyond = fields.get("beyond").and_then(|field| reader.value(field, scalar::word(&BEYOND)));
    LearnConfig::Learns(Learn {
        limit: limit.map_or(DEFAULT_LEARN_LIMIT, |limit| limit.value),
        beyond: beyond.map_or(BeyondLimit::Drop, |beyond| beyond.value),
    })
}

fn learn(scalar: &Scalar) -> Result<LearnConfig, Fault> {
    let learns = |limit| LearnConfig::Learns(Learn { limit, beyond: BeyondLimit::Drop });
    match scalar::boolean(scalar) {
        Ok(true) => Ok(learns(DEFAULT_LEARN_LIMIT)),
        Ok(false) => Ok(LearnConfig::Pinned),
        Err(_) => scalar::integer(1..=MAX_LEARN_LIMIT)(scalar).map(learns).map_err(|fault| {
            let is_number = scalar.text.starts_with(|first: char| first.is_ascii_digit());
            let neither = || Fault::new(format!("`{}` is neither true, false nor a number", scalar.text));
            let fault = if is_number { fault } else { neither() };
            fault.help(format!(
                "write true, false, a number up to {MAX_LEARN_LIMIT}, or `{{ limit: …, beyond: … }}`"
            ))
        }),
    }
}

/// `shaping: { port: { … } }`.
fn read_shaping(reader: &mut Reader<'_>, field: Field<'_>) -> DirectionsConfig {
    let mut reader = reader.part("shaping");
    let Some(fields) = reader.fields(field, &SHAPING) else { return DirectionsConfig::default() };
    fields.get("port").map(|field| shaping::read_directions(&mut reader, field)).unwrap_or_default()
}

/// `vlan`, or `trunk` with or without `native`, or none of them.
fn read_vlan(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<VlanMode> {
    let access = fields.get("vlan").map(|field| (field, reader.value(field, vlan)));
    let trunk = fields.get("trunk").map(|field| (field, reader.one_or_many(field, vlan_range)));
    let native = fields.get("native").map(|field| (field, reader.value(field, vlan)));
    match (access, trunk, native) {
        (Some((vlan, _)), Some((trunk, _)), _) => {
            reader
                .error(trunk.key, "`vlan` and `trunk` contradict each other")
                .related(vlan.key, "an access VLAN")
                .help("`vlan` is the untagged VLAN of an access port; a trunk's untagged VLAN is `native`");
            None
        }
        (_, None, Some((native, _))) => {
            reader
                .error(native.key, "`native` without `trunk`")
                .help("an access port has one VLAN: write `vlan`; `native` is the untagged VLAN of a trunk");
            None
        }
        (Some((_, vlan)), None, None) => Some(VlanMode::Access(vlan?.value)),
        (None, Some((_, ranges)), native) => {
            let native = native.and_then(|(_, native)| native).map(|native| native.value);
            // A native VLAN that the list leaves out is meant to pass, as in Open vSwitch.
            let vlans = ranges.into_iter().flat_map(|range| range.value).chain(native.map(VlanId::get));
            let allowed: VlanSet = vlans.filter_map(|id| VlanId::try_from(id).ok()).collect();
            Some(VlanMode::Trunk { allowed, native })
        }
        (None, None, None) => Some(VlanMode::Access(VlanId::UNTAGGED)),
    }
}

fn vlan(scalar: &Scalar) -> Result<VlanId, Fault> {
    let id = scalar::integer::<u16>(1..=VlanId::MAX.into())(scalar)?;
    VlanId::try_from(id).map_err(|error| Fault::new(error.to_string()))
}

/// `10` or `20-29`.
fn vlan_range(scalar: &Scalar) -> Result<RangeInclusive<u16>, Fault> {
    let part = |text: &str| {
        let id = vlan(&Scalar { text: text.trim().to_owned(), quoted: scalar.quoted });
        id.map(VlanId::get).map_err(|Fault { problem, help }| {
            let problem = if text == scalar.text { problem } else { format!("`{}`: {problem}", scalar.text) };
            let way_out = || "write VLANs and ranges, such as `[10, 20-29]`".to_owned();
            // Of a leading zero the fault itself knows what was probably meant.
            Fault { problem, help: help.filter(|_| text.starts_with('0')).or_else(|| Some(way_out())) }
        })
    };
    let (first, last) = scalar.text.split_once('-').unwrap_or((&scalar.text, &scalar.text));
    let range = part(first)?..=part(last)?;
    if range.is_empty() {
        return Err(
            Fault::new(format!("`{}` is an empty range", scalar.text)).help("the lower VLAN comes first")
        );
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_vlans_in_order() {
        let range = |text: &str| vlan_range(&Scalar { text: text.to_owned(), quoted: false });
        assert_eq!(range("10"), Ok(10..=10));
        assert_eq!(range("20-29"), Ok(20..=29));
        assert_eq!(range("20 - 29"), Ok(20..=29));
        for text in ["29-20", "-5", "1-", "0-5", "1-4095", "1-2-3", "a-b", ""] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn learn_is_a_switch_or_a_limit() {
        let read = |text: &str| learn(&Scalar { text: text.to_owned(), quoted: false });
        let learns = |limit| Ok(LearnConfig::Learns(Learn { limit, beyond: BeyondLimit::Drop }));
        assert_eq!(
            (read("true"), read("false"), read("8")),
            (learns(64), Ok(LearnConfig::Pinned), learns(8))
        );
        assert!(read("0").is_err() && read("4097").is_err() && read("yes").is_err());
    }
}
