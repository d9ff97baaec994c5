//! A `lockgate run` of a test, in a network namespace that plays the host.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use lockgate_control::api::types;
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;

use crate::clock::{Stopwatch, eventually};
use crate::http;
use crate::netns::Netns;
use crate::process::{Process, run, temporary_path};

/// Where every switch of a test serves its metrics: each has a namespace, and thus a loopback interface, of its own.
pub const METRICS: &str = "127.0.0.1:9478";

/// How long a start may take.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a stop may take: twice what is promised, so that a slow one is a message and not a hang.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A topology file in a directory of its own.
#[derive(Debug)]
pub struct TopologyFile {
    directory: PathBuf,
}

impl TopologyFile {
    /// Writes `body`, the part of the topology that matters to the test, with addresses that nobody else uses.
    pub fn new(body: &str) -> Self {
        let directory = temporary_path("switch");
        fs::create_dir(&directory).expect("the directory for temporary files can be written");
        let file = Self { directory };
        let socket = file.socket();
        let head = format!(
            "version: 1\nmetrics: {{ listen: {METRICS} }}\napi: {{ socket: {} }}\n",
            socket.display()
        );
        fs::write(file.path(), head + body).expect("the new directory can be written");
        file
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join("topology.yaml")
    }

    /// The API's socket it names.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("api.sock")
    }
}

impl Drop for TopologyFile {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.directory);
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct Switch<'a> {
    host: &'a Netns,
    process: Process,
    socket: PathBuf,
    /// The file it was started with, if it is this switch's alone.
    _file: Option<TopologyFile>,
}

/// How a daemon ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// From the signal to its end.
    pub took: Duration,
    /// What it logged.
    pub log: String,
}

impl<'a> Switch<'a> {
    /// Starts a switch with this topology and waits until all its ports are up.
    #[track_caller]
    pub fn start(host: &'a Netns, body: &str) -> Self {
        let file = TopologyFile::new(body);
        let mut switch = Self::start_file(host, &file);
        switch._file = Some(file);
        switch.wait_until_up();
        switch
    }

    /// Starts a switch with this file and waits until it answers; its ports may still wait.
    #[track_caller]
    pub fn start_file(host: &'a Netns, file: &TopologyFile) -> Self {
        Self::start_command(host, file, run_command(host, &file.path()))
    }

    /// As [`Self::start_file`], by a command that runs the switch with this file in its own way.
    #[track_caller]
    pub fn start_command(host: &'a Netns, file: &TopologyFile, command: Command) -> Self {
        let process = Process::spawn(command);
        let mut switch = Self { host, process, socket: file.socket(), _file: None };
        eventually("the switch to answer", START_LIMIT, || {
            let ended = switch.process.ended();
            assert!(ended.is_none(), "the switch ended at once: {}", switch.process.output());
            switch.show_if_running("ports").map(|_: Vec<types::Port>| ())
        });
        switch
    }

    /// Waits until every port is up.
    #[track_caller]
    pub fn wait_until_up(&self) {
        let watch = Stopwatch::start();
        loop {
            let down: Vec<_> = self.ports().into_iter().filter(|port| port.state != "up").collect();
            if down.is_empty() {
                return;
            }
            assert!(watch.elapsed() < START_LIMIT, "ports are not up: {down:?}; {}", self.process.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `lockgate show ports`.
    pub fn ports(&self) -> Vec<types::Port> {
        self.show("ports")
    }

    /// One port.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn port(&self, name: &str) -> types::Port {
        self.ports().into_iter().find(|port| port.name == name).unwrap_or_else(|| panic!("no port {name}"))
    }

    /// Frames dropped at `port` in `direction` for `reason`.
    pub fn dropped(&self, port: &str, direction: &str, reason: &str) -> u64 {
        let drops: Vec<types::Drop> = self.show("drops");
        let matches =
            |drop: &&types::Drop| drop.port == port && drop.direction == direction && drop.reason == reason;
        drops.iter().filter(matches).map(|drop| drop.frames).sum()
    }

    /// Frames dropped anywhere for any reason.
    pub fn all_dropped(&self) -> u64 {
        self.show::<Vec<types::Drop>>("drops").iter().map(|drop| drop.frames).sum()
    }

    /// `lockgate show VIEW --json`.
    #[track_caller]
    pub fn show<T: DeserializeOwned>(&self, view: &str) -> T {
        let text = run(self.show_command(view));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("show {view}: {error}: {text}"))
    }

    /// The page of metrics.
    pub fn metrics(&self) -> String {
        http::get(self.host, METRICS, "/metrics")
    }

    /// Sum over all series of a metric.
    ///
    /// # Panics
    /// If there is no such metric.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.metrics();
        let samples = page.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let values: Vec<f64> = samples.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!values.is_empty(), "no metric {name}");
        values.iter().sum()
    }

    /// What must hold whatever happened: every frame is accounted for, and the kernel took every descriptor.
    #[track_caller]
    pub fn assert_sound(&self) {
        assert_eq!(self.metric("lockgate_accounting_error_frames"), 0.0, "frames unaccounted for");
        for metric in ["lockgate_xsk_tx_invalid_descs_total", "lockgate_xsk_rx_invalid_descs_total"] {
            // Without an AF_XDP port there is no such series.
            let page = self.metrics();
            let bad: Vec<_> = page
                .lines()
                .filter(|line| line.starts_with(&format!("{metric}{{")) && !line.ends_with(" 0"))
                .collect();
            assert!(bad.is_empty(), "the kernel refused descriptors: {bad:?}");
        }
    }

    /// The daemon's process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The API's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub fn stop(mut self, signal: Signal) -> Ended {
        let watch = Stopwatch::start();
        self.process.signal(signal);
        let status = self.process.wait(STOP_LIMIT);
        Ended { status, took: watch.elapsed(), log: self.process.output() }
    }

    fn show_if_running<T: DeserializeOwned>(&self, view: &str) -> Option<T> {
        let output = self.show_command(view).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn show_command(&self, view: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["show", view, "--json", "--socket"]).arg(&self.socket);
        command
    }
}

impl Drop for Switch<'_> {
    /// An orderly end, so that a failed test leaves no pair behind.
    fn drop(&mut self) {
        if self.process.ended().is_some() {
            return;
        }
        if std::thread::panicking() {
            eprintln!("the switch logged:\n{}", self.process.output());
        }
        self.process.signal(Signal::SIGTERM);
        let watch = Stopwatch::start();
        while self.process.ended().is_none() && watch.elapsed() < STOP_LIMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// `lockgate run FILE` in the namespace that plays the host.
pub fn run_command(host: &Netns, topology: &Path) -> Command {
    host.command(&format!("{} run {}", binary().display(), topology.display()))
}

/// The program under test: that of the environment variable `LOCKGATE_BIN`, else the one built beside this test.
///
/// # Panics
/// If there is none.
pub fn binary() -> PathBuf {
    if let Some(path) = env::var_os("LOCKGATE_BIN") {
        return path.into();
    }
    let test = env::current_exe().expect("a process knows its program");
    let path = test.ancestors().nth(2).map(|directory| directory.join("lockgate")).unwrap_or_default();
    assert!(
        path.exists(),
        "there is no {}: build it (cargo build -p lockgate-control), or say where it is in LOCKGATE_BIN",
        path.display()
    );
    path
}
