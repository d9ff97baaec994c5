//! What the daemon costs: processor time while nothing happens, memory for many ports.

use std::fs;
use std::time::Duration;

use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::frames::station;
use lockgate_tests::netns::Netns;
use lockgate_tests::require;
use lockgate_tests::switch::{Switch, TopologyFile};
use nix::sys::signal::Signal;
use nix::unistd::{SysconfVar, sysconf};
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
        format!("  p{number}: {{ group: lan, {kind}: {{ netns: {}, interface: eth{number} }} }}\n", far.name())
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

/// Processor time of a process, user and kernel.
fn processor_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The name before it may hold spaces; what follows starts with the third field.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).expect("the system has a clock").expect("and it ticks");
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let per_second = per_second as f64;
    ticks / per_second
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
fn sixty_four_veth_ports_take_less_than_300_mib() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const PORTS: u8 = 64;
    const MOST_MIB: f64 = 300.0;
    /// Other processes come and go: the middle one of three measurements counts.
    const ROUNDS: usize = 3;
    let (host, far) = (Netns::new().without_ipv6(), Netns::new().without_ipv6());
    let port = |number: u8| {
        let (netns, mac) = (far.name(), station(number));
        format!("  p{number}: {{ group: lan, veth: {{ netns: {netns}, interface: eth{number}, mac: \"{mac}\" }} }}\n")
    };
    let ports: String = (0..PORTS).map(port).collect();
    let file = TopologyFile::new(&format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
    let mut used: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        let before = free_mib();
        let watch = Stopwatch::start();
        let switch = Switch::start_file(&host, &file);
        switch.wait_until_up();
        let started = watch.elapsed();
        let during = free_mib();
        let ended = switch.stop(Signal::SIGTERM);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        let after = free_mib();
        println!(
            "{PORTS} ports: {:.0} MiB taken, {:.0} MiB given back, up after {started:?}, ended after {:?}",
            before - during,
            after - during,
            ended.took
        );
        used.extend([before - during, after - during]);
    }
    used.sort_unstable_by(f64::total_cmp);
    let median = f64::midpoint(used[ROUNDS - 1], used[ROUNDS]);
    println!("{PORTS} veth ports with default settings: {median:.0} MiB");
    assert!(median < MOST_MIB, "{used:.0?} MiB");
}

/// Free memory of the machine without what only caches files, once it stands still.
fn free_mib() -> f64 {
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root may");
    const STILL_MIB: f64 = 2.0;
    let mut last = meminfo_mib("MemFree");
    let watch = Stopwatch::start();
    eventually("free memory to stand still", Duration::from_secs(20), || {
        std::thread::sleep(Duration::from_millis(300));
        let now = meminfo_mib("MemFree");
        let still = (now - last).abs() < STILL_MIB || watch.elapsed() > Duration::from_secs(5);
        last = now;
        still.then_some(now)
    })
}

fn meminfo_mib(name: &str) -> f64 {
    let table = fs::read_to_string("/proc/meminfo").expect("the kernel says how much memory there is");
    let row = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: f64 = row.and_then(|row| row.split_whitespace().next()?.parse().ok()).expect("a number of KiB");
    kib / 1024.0
}
