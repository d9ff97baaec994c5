//! What the daemon costs: processor time while nothing happens, memory for many ports.

use std::fs;
use std::time::Duration;

use lockgate_tests::clock::Stopwatch;
use lockgate_tests::frames::station;
use lockgate_tests::netns::Netns;
use lockgate_tests::process::processor_seconds;
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn an_idle_switch_uses_less_than_one_percent_of_a_core() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const PORTS: u64 = 4;
    const MOST_OF_A_CORE: f64 = 0.01;
    const MOST_WAKE_UPS_PER_PORT: f64 = 100.0;
    let (host, far) = (Netns::new().without_ipv6(), Netns::new().without_ipv6());
    let port = |number: u64| {
        let kind = if number < PORTS / 2 { "veth" } else { "tap" };
        format!(
            "  p{number}: {{ group: lan, {kind}: {{ netns: {}, interface: eth{number} }} }}\n",
            far.name()
        )
    };
    let ports: String = (0..PORTS).map(port).collect();
    let switch = Switch::start(&host, &format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
    std::thread::sleep(Duration::from_secs(1));

    let pid = switch.process().pid();
    let (watch, time, sleeps) = (Stopwatch::start(), processor_seconds(pid), voluntary_switches(pid));
    std::thread::sleep(Duration::from_secs(10));
    let elapsed = watch.elapsed().as_secs_f64();
    let share = (processor_seconds(pid) - time) / elapsed;
    let wake_ups = f64::from(voluntary_switches(pid) - sleeps) / elapsed;

    println!("idle with {PORTS} ports: {:.2} % of a core, {wake_ups:.1} wake-ups a second", share * 100.0);
    assert!(share < MOST_OF_A_CORE, "{:.2} % of a core", share * 100.0);
    assert!(wake_ups < MOST_WAKE_UPS_PER_PORT, "{wake_ups:.1} wake-ups a second");
}

/// How often threads of a process went to sleep. Every system call that waits is one; an idle process makes few others.
fn voluntary_switches(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let of_task = |task: fs::DirEntry| -> Option<u32> {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
    };
    tasks.flatten().filter_map(of_task).sum()
}

#[test]
fn sixty_four_af_xdp_ports_take_less_than_300_mib() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const PORTS: u8 = 64;
    const MOST_MIB: f64 = 300.0;
    let (host, far) = (Netns::new().without_ipv6(), Netns::new().without_ipv6());
    let port = |number: u8| {
        let (netns, mac) = (far.name(), station(number));
        format!(
            "  p{number}: {{ group: lan, veth: {{ netns: {netns}, interface: eth{number}, mac: \"{mac}\" }}, steering: xdp }}\n"
        )
    };
    let ports: String = (0..PORTS).map(port).collect();
    let before = kernel_mib();
    let switch = Switch::start(&host, &format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
    let (process, kernel) = (process_mib(switch.process().pid()), kernel_mib() - before);
    println!(
        "{PORTS} veth ports with default settings: {process:.0} MiB of the process, {kernel:.0} MiB of the kernel"
    );
    assert!(process + kernel < MOST_MIB, "{process:.0} + {kernel:.0} MiB");
}

/// Memory of a process that is no file's. The AF_XDP sockets' frames are in it.
fn process_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    ["RssAnon", "RssShmem"].map(|name| field_mib(&status, name)).iter().sum()
}

/// Memory that the kernel has for itself. With [`process_mib`] this is what is missing in the machine's free memory, but
/// for what other processes and the cache of files take or give at the same time, which can be more.
fn kernel_mib() -> f64 {
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root may");
    let meminfo = fs::read_to_string("/proc/meminfo").expect("the kernel says how much memory there is");
    let pools = ["SUnreclaim", "VmallocUsed", "Percpu", "KernelStack", "PageTables"];
    pools.map(|name| field_mib(&meminfo, name)).iter().sum()
}

/// A field of a table like `/proc/meminfo`.
fn field_mib(table: &str, name: &str) -> f64 {
    let row = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: f64 = row.and_then(|row| row.split_whitespace().next()?.parse().ok()).expect("a number of KiB");
    kib / 1024.0
}
