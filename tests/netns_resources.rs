//! What the daemon costs: processor time while nothing happens, memory for many ports.

use std::fs;
use std::time::Duration;

use lockgate_tests::clock::Stopwatch;
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

/// Processor time of a process, user and kernel.
fn processor_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The name before it may hold spaces; what follows starts with the third field.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
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
    /// A round counts in which the switch took as much as it gave back; other processes come and go.
    const AGREEMENT_MIB: f64 = 10.0;
    const MOST_ROUNDS: usize = 6;
    let (host, far) = (Netns::new().without_ipv6(), Netns::new().without_ipv6());
    let port = |number: u8| {
        let (netns, mac) = (far.name(), station(number));
        format!(
            "  p{number}: {{ group: lan, veth: {{ netns: {netns}, interface: eth{number}, mac: \"{mac}\" }} }}\n"
        )
    };
    let ports: String = (0..PORTS).map(port).collect();
    let file = TopologyFile::new(&format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
    let mut rounds: Vec<(f64, f64)> = Vec::new();
    while rounds.len() < MOST_ROUNDS && rounds.iter().all(|(disagreement, _)| *disagreement > AGREEMENT_MIB) {
        let before = left_mib(None);
        let watch = Stopwatch::start();
        let switch = Switch::start_file(&host, &file);
        switch.wait_until_up();
        let started = watch.elapsed();
        let during = left_mib(Some(switch.process().pid()));
        let ended = switch.stop(Signal::SIGTERM);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        let (taken, given_back) = (before - during, left_mib(None) - during);
        println!(
            "took {taken:.0} MiB, gave back {given_back:.0}; up after {started:?}, ended after {:?}",
            ended.took
        );
        rounds.push(((taken - given_back).abs(), f64::midpoint(taken, given_back)));
    }
    let (disagreement, used) =
        rounds.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("there was a round");
    println!("{PORTS} veth ports with default settings: {used:.0} MiB, ± {:.0}", disagreement / 2.0);
    assert!(used < MOST_MIB, "{used:.0} MiB");
}

/// What is left of the machine's memory for `switch` and the kernel, in MiB: what is available, and what other processes
/// have now, whose coming and going is none of the switch's doing. Unlike the resident size of a process this knows of
/// what the kernel holds for it, and unlike free memory it does not move with what files are cached.
fn left_mib(switch: Option<u32>) -> f64 {
    const SAMPLES: usize = 9;
    // What is cached of directories and inodes is only estimated to be available.
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root may");
    let mut samples = [0.0; SAMPLES].map(|_: f64| {
        std::thread::sleep(Duration::from_millis(100));
        meminfo_mib("MemAvailable") + others_mib(switch)
    });
    samples.sort_unstable_by(f64::total_cmp);
    samples[SAMPLES / 2]
}

/// Memory that is no file's, of every process but one.
fn others_mib(switch: Option<u32>) -> f64 {
    let anonymous_kib = |entry: fs::DirEntry| -> Option<f64> {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        if Some(pid) == switch {
            return None;
        }
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse().ok())
    };
    let processes = fs::read_dir("/proc").expect("processes can be listed");
    processes.flatten().filter_map(anonymous_kib).sum::<f64>() / 1024.0
}

fn meminfo_mib(name: &str) -> f64 {
    let table = fs::read_to_string("/proc/meminfo").expect("the kernel says how much memory there is");
    let row = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: f64 = row.and_then(|row| row.split_whitespace().next()?.parse().ok()).expect("a number of KiB");
    kib / 1024.0
}
