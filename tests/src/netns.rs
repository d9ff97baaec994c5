//! A network namespace of a test. It has a name that says whose it is, and goes away with the test.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::clock::eventually;
use crate::process::{NAME_PREFIX, Process, command, run, unique_name};

/// Duplicate address detection takes a second or two.
const ADDRESS_LIMIT: Duration = Duration::from_secs(5);

/// A namespace under `/run/netns`.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

/// What an interface counted, as `ip -s link` shows it; bytes include the Ethernet header and not the FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Frames that came in.
    pub rx_frames: u64,
    /// Frames that came in and were dropped by the device.
    pub rx_dropped: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
    /// Frames that went out.
    pub tx_frames: u64,
    /// Frames that the device dropped on the way out.
    pub tx_dropped: u64,
}

/// An IPv6 address of an interface with the state of its duplicate detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6State {
    /// Still in duplicate detection.
    pub tentative: bool,
    /// Found to be somebody else's.
    pub duplicate: bool,
}

impl Netns {
    /// A new namespace with its loopback interface up.
    pub fn new() -> Self {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(remove_leftovers);
        let netns = Self { name: unique_name() };
        run(command(&format!("ip netns add {}", netns.name)));
        netns.ip("link set lo up");
        // BBR, the default of some hosts, stops for 0.2 s every 10 s to measure, which a window would charge to a cap.
        netns.set_sysctl("ipv4/tcp_congestion_control", "reno");
        netns
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside, with a sysfs of its own; `ip` replaces itself by it, so its process is the
    /// command's.
    pub fn command(&self, words: &str) -> Command {
        command(&format!("ip netns exec {} {words}", self.name))
    }

    /// Runs a command inside and returns what it printed.
    #[track_caller]
    pub fn run(&self, words: &str) -> String {
        run(self.command(words))
    }

    /// `ip …` inside.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        run(command(&format!("ip -n {} {words}", self.name)))
    }

    /// Runs `work` in a thread inside. Sockets it returns stay inside.
    ///
    /// # Panics
    /// If `work` does.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(Path::new("/run/netns").join(&self.name)).expect("the namespace is there");
        let enter_and_work = || {
            setns(&file, CloneFlags::CLONE_NEWNET).expect("root may enter a namespace");
            work()
        };
        thread::scope(|scope| match scope.spawn(enter_and_work).join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Turns IPv6 off for interfaces to come: no frames but those of the test.
    pub fn without_ipv6(self) -> Self {
        for which in ["all", "default"] {
            self.set_sysctl(&format!("ipv6/conf/{which}/disable_ipv6"), "1");
        }
        self
    }

    /// Writes a setting below `/proc/sys/net`.
    pub fn set_sysctl(&self, path: &str, value: &str) {
        self.inside(|| fs::write(format!("/proc/sys/net/{path}"), value).expect("the setting exists"));
    }

    /// Reads a file of this namespace below `/proc/net`.
    pub fn proc_net(&self, file: &str) -> String {
        self.inside(|| fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("the file exists"))
    }

    /// Names of the interfaces, sorted.
    pub fn interfaces(&self) -> Vec<String> {
        let table = self.proc_net("dev");
        let mut names: Vec<_> = table
            .lines()
            .skip(2)
            .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
            .collect();
        names.sort_unstable();
        names
    }

    /// The counters of an interface.
    ///
    /// # Panics
    /// If there is no such interface.
    #[track_caller]
    pub fn counters(&self, interface: &str) -> InterfaceCounters {
        let table = self.proc_net("dev");
        let lines = table.lines().filter_map(|line| line.split_once(':'));
        let (_, counters) = lines
            .into_iter()
            .find(|(name, _)| name.trim() == interface)
            .unwrap_or_else(|| panic!("no interface {interface} in {}", self.name));
        let numbers: Vec<u64> =
            counters.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let &[rx_bytes, rx_frames, _, rx_dropped, _, _, _, _, tx_bytes, tx_frames, _, tx_dropped, ..] =
            &numbers[..]
        else {
            panic!("unexpected counters: {counters}")
        };
        InterfaceCounters { rx_bytes, rx_frames, rx_dropped, tx_bytes, tx_frames, tx_dropped }
    }

    /// Packets that the stack refused for a checksum or a header.
    pub fn refused_packets(&self) -> u64 {
        let refusal = |name: &str| name.ends_with("InCsumErrors") || name.ends_with("InHdrErrors");
        let table = self.proc_net("snmp");
        let mut total = 0;
        let lines: Vec<&str> = table.lines().collect();
        for pair in lines.chunks(2) {
            let [names, values] = pair else { continue };
            let columns = names.split_whitespace().zip(values.split_whitespace());
            total += columns
                .filter(|(name, _)| refusal(name))
                .filter_map(|(_, value)| value.parse::<u64>().ok())
                .sum::<u64>();
        }
        let table = self.proc_net("snmp6");
        let rows = table.lines().filter_map(|line| line.split_once(char::is_whitespace));
        total
            + rows
                .filter(|(name, _)| refusal(name))
                .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
                .sum::<u64>()
    }

    /// The IPv6 addresses of an interface.
    pub fn ipv6_states(&self, interface: &str) -> Vec<Ipv6State> {
        const DAD_FAILED: u32 = 0x08;
        const TENTATIVE: u32 = 0x40;
        let table = self.inside(|| fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default());
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.last() == Some(&interface))
            .map(|row| {
                let flags = u32::from_str_radix(row[4], 16).expect("flags are hexadecimal");
                Ipv6State { tentative: flags & TENTATIVE != 0, duplicate: flags & DAD_FAILED != 0 }
            })
            .collect()
    }

    /// Waits until the IPv6 addresses of `interface` are usable.
    #[track_caller]
    pub fn wait_for_ipv6(&self, interface: &str) {
        eventually("duplicate address detection", ADDRESS_LIMIT, || {
            let states = self.ipv6_states(interface);
            (!states.is_empty() && states.iter().all(|state| !state.tentative)).then_some(())
        });
    }

    /// Waits until `port` is listened on with TCP.
    #[track_caller]
    pub fn wait_for_listener(&self, port: u16) {
        const LISTEN: &str = "0A";
        let suffix = format!(":{port:04X}");
        eventually(&format!("a listener on port {port}"), ADDRESS_LIMIT, || {
            let tables = ["tcp", "tcp6"].map(|file| self.proc_net(file)).concat();
            let rows = tables.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            rows.into_iter()
                .any(|row| row.len() > 3 && row[1].ends_with(&suffix) && row[3] == LISTEN)
                .then_some(())
        });
    }

    /// Round-trip times of `count` echo requests with `payload` bytes, which must not be fragmented, in milliseconds.
    pub fn ping(&self, to: IpAddr, count: u32, payload: usize) -> Vec<f64> {
        let process = self.command(&format!("ping -n -M do -c {count} -i 0.05 -W 1 -s {payload} {to}"));
        let output = process_output(process);
        output
            .lines()
            .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok())
            .collect()
    }
}

impl Default for Netns {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        _ = command(&format!("ip netns del {}", self.name)).status();
    }
}

/// Removes the namespaces of tests that were killed.
fn remove_leftovers() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let owner =
            name.strip_prefix(NAME_PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            _ = command(&format!("ip netns del {name}")).status();
        }
    }
}

/// What a command printed, however it ended.
fn process_output(command: Command) -> String {
    let mut process = Process::spawn(command);
    process.wait(Duration::from_secs(20));
    process.output()
}
