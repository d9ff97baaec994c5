//! The interface that Lockgate makes for a `veth`, `tap` or `internal` port, and the namespace it goes into.

use std::net::IpAddr;

use lockgate_dataplane::frame::mac::MacAddr;

use super::diagnostic::Located;
use super::reader::{Field, Fields, Reader, Schema};
use super::scalar::{self, Fault, Scalar};
use super::tree::Value;
use crate::topology::{Interface, Netns};

/// MTU of an interface that sets none, and assumed of one that Lockgate does not make.
pub const DEFAULT_MTU_BYTES: u32 = 1500;
const MTU_MIN: u64 = 68;
const MTU_MAX: u64 = 65_535;
/// RFC 8200 clause 5: Linux takes IPv6 off a link with less.
const IPV6_MTU_MIN_BYTES: u32 = 1280;
const NETNS_DIRECTORIES: [&str; 2] = ["/run/netns/", "/var/run/netns/"];

const FAR_END: Schema =
    Schema { known: &["netns", "interface", "address", "mac", "mtu"], later: &["gateway", "routes"] };
const INTERNAL: Schema =
    Schema { known: &["interface", "address", "mac", "mtu"], later: &["gateway", "routes"] };
const NETNS: Schema = Schema { known: &["pid"], later: &[] };

/// What was written for an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: Located<String>,
    /// Its address on the link.
    pub mac: Option<Located<MacAddr>>,
    /// Its IP addresses with prefix lengths.
    pub addresses: Vec<Located<(IpAddr, u8)>>,
    /// Its MTU; the default if none was written.
    pub mtu_bytes: u32,
}

/// What was written for an interface in another namespace.
#[derive(Clone, Debug)]
pub struct FarEndConfig {
    /// The namespace.
    pub netns: Netns,
    /// The interface.
    pub interface: InterfaceConfig,
}

impl InterfaceConfig {
    /// Without places. An interface of a port with listed addresses gets the first of them: with any other it could not
    /// send.
    pub fn resolve(&self, port_macs: &[Located<MacAddr>]) -> Interface {
        Interface {
            name: self.name.value.clone(),
            mac: self.mac.or(port_macs.first().copied()).map(|mac| mac.value),
            addresses: self.addresses.iter().map(|address| address.value).collect(),
            mtu: self.mtu_bytes,
        }
    }
}

/// Reads what follows `veth:` or `tap:`.
pub fn read_far_end(reader: &mut Reader<'_>, field: Field<'_>) -> Option<FarEndConfig> {
    let fields = reader.fields(field, &FAR_END)?;
    let netns = fields.get("netns").and_then(|netns| read_netns(reader, netns));
    if fields.lacks("netns") {
        reader.error(field.key, "there is no `netns`").help(
            "add the namespace's name, path, or `{ pid: … }`; a tap that stays with the host is `internal`",
        );
    }
    let interface = read_interface(reader, field, &fields);
    Some(FarEndConfig { netns: netns?, interface: interface? })
}

/// Reads what follows `internal:`.
pub fn read_internal(reader: &mut Reader<'_>, field: Field<'_>) -> Option<InterfaceConfig> {
    let fields = reader.fields(field, &INTERNAL)?;
    read_interface(reader, field, &fields)
}

fn read_interface(reader: &mut Reader<'_>, field: Field<'_>, fields: &Fields<'_>) -> Option<InterfaceConfig> {
    if fields.lacks("interface") {
        reader
            .error(field.key, "there is no `interface`")
            .help("add the interface's name, such as `interface: eth0`");
    }
    let name = fields.get("interface").and_then(|field| reader.value(field, scalar::interface_name));
    let mac = fields.get("mac").and_then(|field| reader.value(field, scalar::mac));
    let addresses = fields
        .get("address")
        .map(|field| reader.one_or_many(field, scalar::interface_address))
        .unwrap_or_default();
    for (index, address) in addresses.iter().enumerate() {
        if let Some(first) = addresses[..index].iter().find(|first| first.value.0 == address.value.0) {
            reader
                .error(address.place, format!("{} is listed twice", address.value.0))
                .related(first.place, "first here")
                .help("keep one of them");
        }
    }
    let mtu = fields.get("mtu").and_then(|field| reader.value(field, mtu));
    if let Some(mtu) = mtu.filter(|mtu| mtu.value < IPV6_MTU_MIN_BYTES)
        && let Some(address) = addresses.iter().find(|address| address.value.0.is_ipv6())
    {
        reader
            .error(mtu.place, format!("MTU {} is too small for IPv6", mtu.value))
            .related(address.place, "an IPv6 address")
            .help(format!("IPv6 needs at least {IPV6_MTU_MIN_BYTES}"));
    }
    let mtu_bytes = mtu.map_or(DEFAULT_MTU_BYTES, |mtu| mtu.value);
    Some(InterfaceConfig { name: name?, mac, addresses, mtu_bytes })
}

/// A name, an absolute path, or `{ pid: … }`.
fn read_netns(reader: &mut Reader<'_>, field: Field<'_>) -> Option<Netns> {
    if !matches!(field.node.value, Value::Mapping(_)) {
        return reader.value(field, netns).map(|netns| netns.value);
    }
    let mut reader = reader.part("netns");
    let fields = reader.fields(field, &NETNS)?;
    if fields.lacks("pid") {
        reader.error(field.key, "there is no `pid`").help("write a name, a path, or `{ pid: 1234 }`");
    }
    let pid = reader.value(fields.get("pid")?, scalar::integer(1..=u64::from(u32::MAX >> 1)))?;
    Some(Netns::Pid(pid.value))
}

/// A path into the directory of named namespaces is the name, so that the same namespace is not two.
fn netns(scalar: &Scalar) -> Result<Netns, Fault> {
    let text = &scalar.text;
    let named = NETNS_DIRECTORIES.iter().find_map(|directory| text.strip_prefix(directory));
    if named.is_none() && text.starts_with('/') {
        return scalar::absolute_path(scalar).map(Netns::Path);
    }
    let name = named.unwrap_or(text);
    if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
        let fault = Fault::new(format!("`{text}` is not a network namespace"));
        return Err(fault.help("write a name as `ip netns` shows it, an absolute path, or `{ pid: 1234 }`"));
    }
    Ok(Netns::Name(name.to_owned()))
}

/// Reads an MTU. It is a count of bytes by definition, so it stands without a unit, as everywhere else.
fn mtu(scalar: &Scalar) -> Result<u32, Fault> {
    scalar::integer(MTU_MIN..=MTU_MAX)(scalar)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_namespace_is_named_in_one_way() {
        let read = |text: &str| netns(&Scalar { text: text.to_owned(), quoted: false });
        assert_eq!(read("web1"), Ok(Netns::Name("web1".to_owned())));
        assert_eq!(read("/run/netns/web1"), read("web1"));
        assert_eq!(read("/var/run/netns/web1"), read("web1"));
        assert_eq!(read("/proc/7/ns/net"), Ok(Netns::Path(PathBuf::from("/proc/7/ns/net"))));
        for text in ["", "a/b", "..", "/run/netns/", "/run/netns/../x"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
