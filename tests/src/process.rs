//! A process of a test: it ends with the test, also when that panics.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::clock::eventually;

/// Start of the names that tests make up; the number of the test's process follows.
pub const NAME_PREFIX: &str = "lgt-";
/// How long a command may take that does one thing and ends.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// A running process. What it prints goes to a file, so that it never waits for a reader.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    output: PathBuf,
}

impl Process {
    /// Starts `command`.
    pub fn spawn(mut command: Command) -> Self {
        let name = format!("{command:?}");
        let output = temporary_path("output");
        let file = File::create(&output).expect("the directory for temporary files can be written");
        let errors = file.try_clone().expect("a file descriptor is left");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name, output }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Whether it ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child is ours to wait for")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("process numbers are small");
        kill(Pid::from_raw(pid), signal).unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.name));
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        eventually(&what, limit, || self.ended())
    }

    /// Waits for its end, which must be a success, and returns what it printed.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> String {
        let status = self.wait(limit);
        assert!(status.success(), "{} ended with {status}: {}", self.name, self.output());
        self.output()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_file(&self.output);
    }
}

/// Runs a command to its end, which must be a success, and returns what it printed.
#[track_caller]
pub fn run(command: Command) -> String {
    Process::spawn(command).finish(COMMAND_LIMIT)
}

/// A command from words.
pub fn command(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().expect("a command has a name"));
    command.args(words);
    command
}

/// A path that nobody else uses.
pub fn temporary_path(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{}-{what}", unique_name()))
}

/// A name that nobody else uses, of at most 20 letters.
pub fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{NAME_PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processor time of a process, user and kernel, in seconds.
///
/// # Panics
/// If it does not run.
pub fn processor_seconds(pid: u32) -> f64 {
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
