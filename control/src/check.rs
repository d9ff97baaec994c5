//! `lockgate check`: reads a topology file and prints what would be in effect, with every default filled in.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::Direction;
use lockgate_dataplane::state::{BeyondLimit, Service, VlanMode};

use crate::config::{self, Loaded};
use crate::topology::{
    FarEnd, Interface, Netns, Origin, Port, PortGroup, PortKind, PortShaping, Topology, Workers,
};

/// Checks the file at `path`: the summary goes to `out`, what is wrong or doubtful to `err`. A refused file exits with 1.
pub fn run(path: &Path, out: &mut impl Write, err: &mut impl Write, colours: bool) -> io::Result<ExitCode> {
    match config::load(path) {
        Ok(Loaded { topology, warnings, hash }) => {
            err.write_all(warnings.render(colours).as_bytes())?;
            write!(out, "{}", Summary(&topology))?;
            writeln!(out, "\n{} is valid, hash {hash}", path.display())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(report) => {
            err.write_all(report.render(colours).as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A topology for people: the switch, its classes, groups and ports, and each limit with its arrow.
pub struct Summary<'a>(pub &'a Topology);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = self.0;
        let workers = match topology.workers {
            Workers::Auto => "auto".to_owned(),
            Workers::Count(count) => count.to_string(),
        };
        let fdb = topology.fdb;
        writeln!(
            f,
            "switch {}: workers {workers}, MAC table {} entries, age {}",
            topology.name, fdb.capacity, fdb.age
        )?;
        writeln!(
            f,
            "metrics: http://{}/metrics, API: {}",
            topology.metrics_listen,
            topology.api_socket.display()
        )?;
        write_classes(f, topology)?;
        for group in &topology.groups {
            writeln!(f, "group {}: {}", group.name, Vlans(group))?;
        }
        topology.ports.iter().try_for_each(|port| write_port(f, topology, port))
    }
}

fn write_classes(f: &mut fmt::Formatter<'_>, topology: &Topology) -> fmt::Result {
    let table = &topology.classes;
    for (rank, (name, class)) in topology.class_names.iter().zip(&table.classes).enumerate() {
        let matches = |codes: &[Option<lockgate_dataplane::id::ClassId>]| {
            let own = codes
                .iter()
                .enumerate()
                .filter(|(_, class)| class.is_some_and(|class| class.index() == rank));
            own.map(|(code, _)| code.to_string()).collect::<Vec<_>>().join(" ")
        };
        match class.service {
            Service::Strict => write!(f, "class {name}: strict")?,
            Service::Weighted { weight } => write!(f, "class {name}: weight {weight}")?,
        }
        for (field, codes) in [("dscp", matches(&table.by_dscp)), ("pcp", matches(&table.by_pcp))] {
            if !codes.is_empty() {
                write!(f, ", {field} {codes}")?;
            }
        }
        f.write_str(if table.default.index() == rank { ", everything else\n" } else { "\n" })?;
    }
    Ok(())
}

fn write_port(f: &mut fmt::Formatter<'_>, topology: &Topology, port: &Port) -> fmt::Result {
    let group = &topology.groups[port.group.index()].name;
    writeln!(f, "port {}: group {group}, {}", port.name, Kind(&port.kind))?;
    writeln!(f, "  sources: {}", sources(port))?;
    for (direction, shaping) in [(Direction::Ingress, port.ingress), (Direction::Egress, port.egress)] {
        match shaping {
            Some(shaping) => writeln!(f, "  {direction}: {}", limit(shaping, group))?,
            None => writeln!(f, "  {direction}: no limit")?,
        }
    }
    Ok(())
}

fn limit(PortShaping { shaping, origin }: PortShaping, group: &str) -> String {
    let peak = shaping.peak.map_or("none".to_owned(), |peak| peak.to_string());
    let mut text = format!(
        "average {}, peak {peak}, burst {}, max_delay {}",
        shaping.average, shaping.burst, shaping.max_delay
    );
    if shaping.overhead.get() > 0 {
        let _infallible = write!(text, ", overhead {}", shaping.overhead);
    }
    match origin {
        Origin::Group => text + &format!(" (from group {group})"),
        Origin::Port => text + " (from the port)",
    }
}

fn sources(port: &Port) -> String {
    if let Some(learn) = port.learn {
        let beyond = match learn.beyond {
            BeyondLimit::Drop => "dropped",
            BeyondLimit::Forward => "forwarded",
        };
        return format!("learned, up to {}, frames from further ones are {beyond}", learn.limit);
    }
    if !port.macs.is_empty() {
        return port.macs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    }
    match &port.kind {
        PortKind::Netdev { .. } => "the far end's address, else the first one seen".to_owned(),
        PortKind::Veth(..) | PortKind::Tap(_) | PortKind::Internal { .. } => {
            "the interface's own address".to_owned()
        }
    }
}

struct Vlans<'a>(&'a PortGroup);

impl fmt::Display for Vlans<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.vlan {
            VlanMode::Access(VlanId::UNTAGGED) => write!(f, "untagged (VLAN {})", VlanId::UNTAGGED)?,
            VlanMode::Access(vlan) => write!(f, "access VLAN {vlan}")?,
            VlanMode::Trunk { allowed, native: Some(native) } => {
                write!(f, "trunk {allowed:?}, native {native}")?
            }
            VlanMode::Trunk { allowed, native: None } => {
                write!(f, "trunk {allowed:?}, untagged frames refused")?
            }
        }
        f.write_str(if self.0.isolated { ", isolated" } else { "" })
    }
}

struct Kind<'a>(&'a PortKind);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PortKind::Netdev { interface, steering } => {
                write!(f, "netdev {interface}, steering {}", steering.name())
            }
            PortKind::Veth(far_end, steering) => {
                write_far_end(f, "veth", far_end)?;
                write!(f, ", steering {}", steering.name())
            }
            PortKind::Tap(far_end) => write_far_end(f, "tap", far_end),
            PortKind::Internal { interface } => {
                f.write_str("internal ")?;
                write_interface(f, interface)
            }
        }
    }
}

fn write_far_end(f: &mut fmt::Formatter<'_>, kind: &str, far_end: &FarEnd) -> fmt::Result {
    write!(f, "{kind} ")?;
    write_interface(f, &far_end.interface)?;
    match &far_end.netns {
        Netns::Name(name) => write!(f, " in namespace {name}"),
        Netns::Path(path) => write!(f, " in namespace {}", path.display()),
        Netns::Pid(pid) => write!(f, " in the namespace of process {pid}"),
    }
}

fn write_interface(f: &mut fmt::Formatter<'_>, interface: &Interface) -> fmt::Result {
    write!(f, "{}", interface.name)?;
    interface.addresses.iter().try_for_each(|(address, prefix)| write!(f, " {address}/{prefix}"))?;
    if let Some(mac) = interface.mac {
        write!(f, " {mac}")?;
    }
    write!(f, " mtu {}", interface.mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_every_default_and_where_a_limit_comes_from() {
        let text = r#"
version: 1
classes: { voice: { match: [{ dscp: ef }, { pcp: 5 }], strict: true } }
port_groups:
  web: { vlan: 10, shaping: { port: { ingress: { average: 100 Mbit/s, peak: 200 Mbit/s } } } }
ports:
  web1: { group: web, veth: { netns: web1, interface: eth0, address: 10.0.0.11/24 } }
  vm1: { group: web, netdev: tap-vm1, mac: "52:54:00:00:00:01", shaping: { egress: { average: 1 Gbit/s, overhead: 24 B } } }
"#;
        let topology = config::parse("sw.yaml", text).unwrap().topology;
        let expected = "\
switch sw0: workers auto, MAC table 8192 entries, age 300 s
metrics: http://127.0.0.1:9478/metrics, API: /run/lockgate/lockgate.sock
class voice: strict, dscp 46, pcp 5
class best_effort: weight 1, everything else
group web: access VLAN 10
port web1: group web, veth eth0 10.0.0.11/24 mtu 1500 in namespace web1, steering auto
  sources: the interface's own address
  ingress (port → switch): average 100 Mbit/s, peak 200 Mbit/s, burst 125000 B, max_delay 20 ms (from group web)
  egress (switch → port): no limit
port vm1: group web, netdev tap-vm1, steering auto
  sources: 52:54:00:00:00:01
  ingress (port → switch): average 100 Mbit/s, peak 200 Mbit/s, burst 125000 B, max_delay 20 ms (from group web)
  egress (switch → port): average 1 Gbit/s, peak none, burst 1250000 B, max_delay 20 ms, overhead 24 B (from the port)
";
        assert_eq!(Summary(&topology).to_string(), expected);
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_on_the_error_stream() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = run(Path::new("/nonexistent/sw.yaml"), &mut out, &mut err, false).unwrap();
        assert_eq!(exit, ExitCode::FAILURE);
        assert!(out.is_empty());
        let err = String::from_utf8(err).unwrap();
        assert!(err.contains("cannot read /nonexistent/sw.yaml: No such file"), "{err}");
    }
}
