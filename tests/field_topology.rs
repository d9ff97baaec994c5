//! Faults of other switches' configuration files, tried on ours: what is misspelt, doubled, out of place, cut off or read
//! as another type is refused with its place, and never becomes a port without its limit.

use std::fs;
use std::path::Path;

use lockgate_control::api::types;
use lockgate_control::config::diagnostic::Report;
use lockgate_control::config::{self, Loaded};
use lockgate_control::topology::Topology;
use lockgate_tests::lab::links;
use lockgate_tests::netns::Netns;
use lockgate_tests::require;
use lockgate_tests::switch::Switch;

/// Keys that the examples use and nobody uses as a name.
const KEYS: [&str; 30] = [
    "version",
    "switch",
    "workers",
    "mac_table",
    "metrics",
    "listen",
    "api",
    "socket",
    "classes",
    "match",
    "strict",
    "weight",
    "port_groups",
    "vlan",
    "trunk",
    "native",
    "isolated",
    "learn",
    "shaping",
    "ingress",
    "egress",
    "average",
    "peak",
    "burst",
    "max_delay",
    "overhead",
    "ports",
    "group",
    "interface",
    "address",
];

fn examples() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    yaml.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// Where `key` stands as a key in `text`, outside of comments.
fn occurrences(text: &str, key: &str) -> Vec<usize> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_' || character == '-';
    let stands_alone = |at: &usize| {
        let line = text[..*at].rsplit('\n').next().unwrap();
        !line.contains('#') && !text[..*at].ends_with(is_word) && text[at + key.len()..].starts_with(':')
    };
    text.match_indices(key).map(|(at, _)| at).filter(stands_alone).collect()
}

fn load(text: &str) -> Result<Topology, Report> {
    config::parse("field.yaml", text).map(|Loaded { topology, .. }| topology)
}

/// The messages of a text that must be refused, each with its place.
#[track_caller]
fn refused(text: &str) -> Vec<(String, (usize, usize), String)> {
    let Err(report) = load(text) else { panic!("it loads:\n{text}") };
    let describe = |diagnostic: &config::diagnostic::Diagnostic| {
        let at = report.position(diagnostic).unwrap_or_else(|| panic!("no place: {}", diagnostic.message));
        (diagnostic.message.clone(), at, diagnostic.help.clone().unwrap_or_default())
    };
    report.diagnostics().iter().map(describe).collect()
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let line = text[..at].matches('\n').count() + 1;
    (line, text[..at].rsplit('\n').next().unwrap().chars().count() + 1)
}

#[test]
fn a_misspelt_key_is_refused_where_it_stands_and_the_right_one_is_named() {
    let mut tried = 0;
    for (name, text) in examples() {
        for key in KEYS {
            for at in occurrences(&text, key) {
                let misspelt = &key[..key.len() - 1];
                let wrong = format!("{}{misspelt}{}", &text[..at], &text[at + key.len()..]);
                let messages = refused(&wrong);
                let here = position(&wrong, at);
                let found =
                    messages.iter().find(|(message, place, _)| *place == here && message.contains(misspelt));
                let Some((_, _, help)) = found else {
                    panic!("{name}: {misspelt} at {here:?}: {messages:?}")
                };
                assert!(help.contains(&format!("`{key}`")), "{name}: {misspelt}: {help}");
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "only {tried} keys");
}

/// A line that moved one level in or out means the same, or is refused: never another topology without a word.
#[test]
fn wrong_indentation_never_changes_what_is_meant() {
    let (mut refusals, mut same) = (0, 0);
    for (name, text) in examples() {
        let meant = format!("{:?}", load(&text).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let is_key = line.trim_start().split_once(':').is_some_and(|(key, _)| KEYS.contains(&key));
            if !is_key {
                continue;
            }
            let moved = [Some(format!("  {line}")), line.strip_prefix("  ").map(str::to_owned)];
            for moved in moved.into_iter().flatten() {
                let mut lines: Vec<&str> = lines.clone();
                lines[at] = &moved;
                match load(&lines.join("\n")) {
                    Err(_) => refusals += 1,
                    Ok(topology) => {
                        assert_eq!(format!("{topology:?}"), meant, "{name}: {moved:?}");
                        same += 1;
                    }
                }
            }
        }
    }
    assert!(refusals > 50, "{refusals} refused, {same} the same");
}

#[test]
fn a_setting_of_another_kind_of_port_is_refused() {
    for (port, key) in [
        ("netdev: veth-a, address: 10.0.0.1/24", "address"),
        ("netdev: veth-a, netns: a", "netns"),
        ("internal: { interface: lg0, netns: a }", "netns"),
        ("internal: { interface: lg0, vlan: 10 }", "vlan"),
        ("tap: { netns: a, interface: eth0, average: 1 Mbit/s }", "average"),
        ("veth: { netns: a, interface: eth0, group: web }", "group"),
    ] {
        let text =
            format!("version: 1\nport_groups: {{ web: {{}} }}\nports:\n  a: {{ group: web, {port} }}\n");
        let messages = refused(&text);
        let named = |(message, (line, _), _): &(String, (usize, usize), String)| {
            message.contains(&format!("`{key}`")) && *line == 4
        };
        assert!(messages.iter().any(named), "{port}: {messages:?}");
    }
}

#[test]
fn what_is_written_twice_is_refused_with_both_places() {
    let head = "version: 1\nport_groups: { web: { vlan: 10 } }\n";
    for (body, lines) in [
        ("ports:\n  a: { group: web, netdev: x }\n  a: { group: web, netdev: y }\n", [4, 5]),
        ("ports:\n  a: { group: web, netdev: x,\n    group: web }\n", [4, 5]),
        ("ports:\n  a: { group: web, netdev: x }\nports:\n  b: { group: web, netdev: y }\n", [3, 5]),
        ("port_groups:\n  db: { vlan: 20 }\nports:\n  a: { group: web, netdev: x }\n", [2, 3]),
        ("ports:\n  a: { group: web, netdev: x }\n  b: { group: web, netdev: x }\n", [4, 5]),
        (
            "ports:\n  a: { group: web, netdev: x, mac: \"02:00:00:00:00:01\" }\n  b: { group: web, netdev: y, mac: \"02:00:00:00:00:01\" }\n",
            [4, 5],
        ),
    ] {
        let text = head.to_owned() + body;
        let Err(report) = load(&text) else { panic!("it loads:\n{text}") };
        let [diagnostic] = report.diagnostics() else { panic!("{report}") };
        let related = diagnostic.related.iter().map(|(span, _)| position(&text, span.start).0);
        let mut found: Vec<usize> =
            related.chain(report.position(diagnostic).map(|(line, _)| line)).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, lines, "{report}");
    }
}

#[test]
fn an_address_is_text_of_one_form_and_a_number_is_named_as_one() {
    let with = |mac: &str| {
        load(&format!(
            "version: 1\nport_groups: {{ web: {{}} }}\nports:\n  a: {{ group: web, netdev: x, mac: {mac} }}\n"
        ))
    };
    for good in [
        "52:54:00:12:34:56",
        "\"52:54:00:12:34:56\"",
        "00:11:22:33:44:55",
        "AA:BB:CC:DD:EE:F0",
        "\"aa:bb:cc:dd:ee:f0\"",
    ] {
        let topology = with(good).unwrap_or_else(|report| panic!("{good}: {report}"));
        let written = good.trim_matches('"').to_lowercase();
        assert_eq!(topology.ports[0].macs.iter().map(ToString::to_string).collect::<Vec<_>>(), [written]);
    }
    // As base 60, as a tool rewrote it; cut short; the notations of other tools; nobody's, everybody's, a group's.
    for bad in [
        "41135085296",
        "0x2654",
        "0:1:2:3:4:5",
        "aa-bb-cc-dd-ee-ff",
        "aabb.ccdd.eeff",
        "52:54:00:12:34",
        "52:54:00:12:34:56:78",
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "01:00:5e:00:00:01",
        "~",
        "true",
        "\"\"",
    ] {
        let Err(report) = with(bad) else { panic!("{bad} is taken") };
        assert!(
            report.diagnostics().iter().all(|diagnostic| report.position(diagnostic).unwrap().0 == 4),
            "{report}"
        );
    }
    let Err(report) = with("41135085296") else { unreachable!() };
    assert!(report.diagnostics()[0].help.as_ref().unwrap().contains("quote the MAC"), "{report}");
}

/// What one YAML reader takes for text another takes for a number, a switch or nothing.
#[test]
fn numbers_and_names_mean_what_is_documented_or_are_refused_at_their_place() {
    let port = |name: &str| {
        format!("version: 1\nport_groups: {{ web: {{}} }}\nports:\n  {name}: {{ group: web, netdev: x }}\n")
    };
    for name in ["10", "1e2", "no", "on", "yes", "0x10", "true", "1_0", "0100"] {
        let topology = load(&port(name)).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(topology.ports[0].name, name, "a name is what was written");
    }
    let group = |body: &str| {
        format!("version: 1\nport_groups:\n  web: {{ {body} }}\nports:\n  a: {{ group: web, netdev: x }}\n")
    };
    let average = |rate: &str| group(&format!("shaping: {{ port: {{ ingress: {{ average: {rate} }} }} }}"));
    for good in ["vlan: 1", "vlan: 4094", "isolated: true", "isolated: false"] {
        assert!(load(&group(good)).is_ok(), "{good}");
    }
    for bad in [
        "vlan: 0100",
        "vlan: 1_0",
        "vlan: 0x10",
        "vlan: 0o10",
        "vlan: 1e3",
        "vlan: 1.0",
        "vlan: -1",
        "vlan: 0",
        "vlan: 4095",
        "vlan: 4096",
        "vlan: 70000",
        "vlan: no",
        "vlan: ~",
        "vlan:",
        "vlan: []",
        "isolated: no",
        "isolated: on",
        "isolated: 1",
        "isolated: ~",
    ] {
        let messages = refused(&group(bad));
        assert!(messages.iter().all(|(_, (line, _), _)| *line == 3), "{bad}: {messages:?}");
    }
    for bad in ["100", "100M", "1e3", "1_000 kbit/s", "-1 Mbit/s", "NaN", ".inf", "~", "yes"] {
        let messages = refused(&average(bad));
        assert!(messages.iter().all(|(_, (line, _), _)| *line == 3), "{bad}: {messages:?}");
    }
    for bad in ["mtu: 0", "mtu: 1e4", "mtu: 1500.0", "mtu: 0x5dc", "mtu: 70000", "mtu: ~"] {
        let text = format!(
            "version: 1\nport_groups: {{ web: {{}} }}\nports:\n  a: {{ group: web, tap: {{ netns: a, interface: eth0, {bad} }} }}\n"
        );
        let messages = refused(&text);
        assert!(messages.iter().all(|(_, (line, _), _)| *line == 4), "{bad}: {messages:?}");
    }
    // A port without any setting is no port with defaults; neither is a file without content, or two in one.
    for text in [
        "version: 1\nport_groups: { web: {} }\nports:\n  a0:\n",
        "",
        "\u{feff}",
        "---\n...\n",
        "version: 1\nports: {}\n---\nversion: 1\n",
    ] {
        assert!(load(text).is_err(), "{text:?}");
    }
    assert!(
        !refused("version: 1\nports:\n\ta: { group: web, netdev: x }\n").is_empty(),
        "a tab is no indentation"
    );
}

#[test]
fn an_interface_name_is_taken_whole_or_refused() {
    let with = |name: &str| {
        format!(
            "version: 1\nport_groups: {{ web: {{}} }}\nports:\n  a: {{ group: web, netdev: {name} }}\n  b: {{ group: web, netdev: other }}\n"
        )
    };
    let fifteen = "veth-frontend-1";
    assert_eq!(fifteen.len(), 15);
    let topology = load(&with(fifteen)).unwrap();
    assert!(format!("{:?}", topology.ports[0]).contains(fifteen));
    for name in [
        "veth-frontend-12",
        "veth-frontend-1-of-the-second-rack-00001",
        "\"../x\"",
        "\"a b\"",
        "eth0@if3",
        "\"eth0:1\"",
        "\"\"",
        "\".\"",
        "\"..\"",
        "\"a/b\"",
        "\"tab\\there\"",
        "\"vethééééééééé\"",
    ] {
        let messages = refused(&with(name));
        assert!(messages.iter().all(|(_, (line, _), _)| *line == 4), "{name}: {messages:?}");
    }
    // Two names that agree in their first 15 bytes are two mistakes, not one interface.
    let both = with("veth-frontend-12").replace("other", "veth-frontend-13");
    assert_eq!(refused(&both).len(), 2);
}

/// What a switch with this file says it is: ports, groups and limits, without what only counts.
fn dump(switch: &Switch<'_>) -> Vec<String> {
    let ports = switch.ports().into_iter().map(|port| {
        let types::Port { name, group, kind, state, interface, driver, vlan, mtu_bytes, .. } = port;
        format!("{name} {group} {kind} {state} {interface:?} {driver:?} {vlan} {mtu_bytes:?}")
    });
    let groups = switch
        .show::<Vec<types::Group>>("groups")
        .into_iter()
        .map(|group| format!("{} {} {} {}", group.name, group.vlan, group.isolated, group.ports));
    let shapers = switch.show::<Vec<types::Shaper>>("shapers").into_iter().map(|shaper| {
        let types::Shaper { port, direction, set_by, average_bits_per_second, burst_bytes, .. } = shaper;
        format!("{port} {direction} {set_by} {average_bits_per_second} {burst_bytes}")
    });
    ports.chain(groups).chain(shapers).collect()
}

/// Until a running switch takes another file, a restart does: what it had before leaves no trace in it.
#[test]
fn a_restart_with_another_file_equals_a_fresh_start_with_it() {
    if !require::root("netns") {
        return;
    }
    let far: [Netns; 3] = std::array::from_fn(|_| Netns::new());
    let port = |at: usize, group: &str, rest: &str| {
        let netns = far[at].name();
        format!(
            "  p{at}: {{ group: {group}, veth: {{ netns: {netns}, interface: eth0, address: 10.77.0.1{at}/24 }}{rest} }}\n"
        )
    };
    let groups = "port_groups:\n  web: { vlan: 10, shaping: { port: { egress: { average: 5 Mbit/s } } } }\n  db: { vlan: 20 }\nports:\n";
    let first =
        [groups, &port(0, "web", ""), &port(1, "web", ", shaping: { ingress: { average: 1 Mbit/s } }")]
            .concat();
    let groups = "port_groups:\n  web: { vlan: 30, shaping: { port: { egress: { average: 9 Mbit/s } } } }\n  app: { vlan: 20 }\nports:\n";
    let second = [groups, &port(1, "app", ""), &port(2, "web", ""), &port(0, "app", "")].concat();
    let fresh = {
        let host = Netns::new();
        let switch = Switch::start(&host, &second);
        dump(&switch)
    };
    let host = Netns::new();
    let clean = links(&host);
    for _ in 0..3 {
        drop(Switch::start(&host, &first));
        let switch = Switch::start(&host, &second);
        assert_eq!(dump(&switch), fresh);
        assert_eq!(far[0].ping("10.77.0.11".parse().unwrap(), 1, 56).len(), 1, "moved to one group");
        assert!(far[0].ping("10.77.0.12".parse().unwrap(), 1, 56).is_empty(), "and away from another");
        drop(switch);
        assert_eq!(links(&host), clean);
    }
}
