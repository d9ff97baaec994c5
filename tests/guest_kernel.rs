//! The switch on an older kernel: Debian 12's 6.1, in a virtual machine of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockgate_control::api::types;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::clock::Stopwatch;
use lockgate_tests::guest::{self, Guest};
use lockgate_tests::netns::Netns;
use lockgate_tests::process::{run, temporary_path};
use lockgate_tests::require;
use lockgate_tests::switch::binary;

const TOPOLOGY: &str = r#"version: 1
metrics: { listen: 127.0.0.1:9478 }
api: { socket: /run/lockgate.sock }
port_groups:
  lan: { vlan: 10, shaping: { port: { egress: { average: 20 Mbit/s } } } }
ports:
  a: { group: lan, veth: { netns: a, interface: eth0, address: [10.77.0.1/24, "fd77::1/64"] } }
  b: { group: lan, veth: { netns: b, interface: eth0, address: [10.77.0.2/24, "fd77::2/64"] } }
  c: { group: lan, tap: { netns: c, interface: eth0, address: [10.77.0.3/24, "fd77::3/64"] } }
  host: { group: lan, internal: { interface: lg-host, address: [10.77.0.9/24, "fd77::9/64"] } }
"#;
const START_LIMIT: Duration = Duration::from_secs(20);

/// An archive with the switch, what it loads, and its topology.
fn archive() -> PathBuf {
    let tree = temporary_path("tree");
    let install = |from: &Path, to: &Path| {
        let to = tree.join(to.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(to.parent().expect("a file is somewhere")).unwrap();
        fs::copy(from, to).unwrap();
    };
    let mut ldd = Command::new("ldd");
    ldd.arg(binary());
    for library in run(ldd).split_whitespace().filter(|word| word.starts_with('/')) {
        install(&fs::canonicalize(library).unwrap(), Path::new(library));
    }
    let stripped = temporary_path("lockgate");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped).arg(binary());
    run(strip);
    install(&stripped, Path::new("/usr/bin/lockgate"));
    fs::write(tree.join("topology.yaml"), TOPOLOGY).unwrap();
    let archive = temporary_path("cpio");
    let mut cpio = Command::new("sh");
    cpio.arg("-c").arg(format!(
        "cd {} && find . | cpio --create --format newc --quiet >{}",
        tree.display(),
        archive.display()
    ));
    run(cpio);
    _ = (fs::remove_dir_all(tree), fs::remove_file(stripped));
    archive
}

#[test]
fn on_linux_6_1_everything_but_multi_buffer_works_and_its_lack_is_said() {
    if !require::root("guest") || !require::ring_can_run("guest", guest::obstacle()) {
        return;
    }
    let host = Netns::new();
    let archive = archive();
    let guest = Guest::boot(&host, "tap-vm", MacAddr([0x52, 0x54, 0, 0, 0, 2]), Some(&archive));
    _ = fs::remove_file(archive);
    let release = guest.run("uname -r");
    assert!(release.starts_with("6.1."), "{release}");
    guest.run("for name in a b c; do /usr/bin/ip netns add $name && /usr/bin/ip -n $name link set lo up || break; done");
    guest.start("lockgate run /topology.yaml", "/tmp/log");
    let log = || guest.run("cat /tmp/log");
    let ports = || -> Option<Vec<types::Port>> {
        let (_, output) = guest.try_run("lockgate show ports --json --socket /run/lockgate.sock");
        serde_json::from_str(output.trim()).ok()
    };
    let watch = Stopwatch::start();
    while !ports().is_some_and(|ports| ports.iter().all(|port| port.state == "up")) {
        assert!(watch.elapsed() < START_LIMIT, "{:?}: {}", ports(), log());
    }
    for (from, to) in
        [("a", "10.77.0.2"), ("b", "fd77::1"), ("a", "10.77.0.3"), ("c", "fd77::2"), ("c", "10.77.0.9")]
    {
        let (status, said) =
            guest.try_run(&format!("/usr/bin/ip netns exec {from} ping -c 2 -W 2 -s 1400 {to}"));
        assert_eq!(status, 0, "from {from} to {to}: {said}{}", log());
    }
    // TCP of real stacks, with every offload as it comes.
    guest.run("/usr/bin/ip netns exec b iperf3 -s -1 -D; until /usr/bin/ip netns exec b netstat -tln | grep -q :5201; do sleep 0.1; done");
    let report = guest.run("/usr/bin/ip netns exec a iperf3 -J -t 2 -c 10.77.0.2");
    let received = lockgate_tests::traffic::Report::read(&report).received_bytes;
    assert!(received > 2_000_000, "{received} bytes in two seconds at 20 Mbit/s");
    let drivers: Vec<_> = ports().unwrap().into_iter().filter_map(|port| port.driver).collect();
    let by_xdp = drivers.iter().filter(|driver| *driver == "af_xdp").count();
    let said = log();
    let missing = said.lines().filter(|line| line.contains("multi-buffer")).count();
    assert_eq!(missing, by_xdp, "what this kernel lacks is said once for each such port: {said}");
    println!("{drivers:?}\n{said}");
    guest.run("kill -TERM $(pidof lockgate); while pidof lockgate; do sleep 0.1; done");
    assert!(!guest.run("ip link").contains("lg-host"), "nothing is left");
}
