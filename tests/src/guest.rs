//! A virtual machine of a test: QEMU in software emulation, Debian's cloud kernel, busybox and iperf3, with one virtio
//! network card on a tap that QEMU opens as every hypervisor does.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockgate_dataplane::frame::mac::MacAddr;

use crate::clock::eventually;
use crate::netns::Netns;
use crate::process::{Process, run, temporary_path};

/// Three seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// How long a command inside may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// Ends the output of every command.
const END: &str = "guest-status";

/// A running guest. It ends with the test, and its tap with it.
#[derive(Debug)]
pub struct Guest {
    process: Process,
    /// Both ends of its second serial port, where a shell reads commands.
    shell: RefCell<BufReader<UnixStream>>,
    directory: PathBuf,
}

/// A reading of the card's counter.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// When, by the guest's clock.
    pub seconds: f64,
    /// Bytes of Ethernet frames so far.
    pub bytes: u64,
}

/// Why no guest can run here, if so.
#[must_use]
pub fn obstacle() -> Option<&'static str> {
    let is_missing = |program: &str| Command::new(program).arg("--help").output().is_err();
    let missing = ["qemu-system-x86_64", "busybox", "cpio", "lz4"].into_iter().any(is_missing);
    missing.then_some("it needs what scripts/setup installs")
}

impl Guest {
    /// Boots a guest whose card has address `mac` and hangs on the tap `tap`, which QEMU makes in `host`. `extra` is a
    /// further archive (cpio) of files for it.
    #[track_caller]
    pub fn boot(host: &Netns, tap: &str, mac: MacAddr, extra: Option<&Path>) -> Self {
        let image = image();
        let directory = temporary_path("guest");
        fs::create_dir(&directory).expect("the directory for temporary files can be written");
        // The kernel unpacks archives that follow each other.
        let mut initramfs = fs::read(image.join("initramfs")).expect("it was just made");
        initramfs.extend(extra.into_iter().flat_map(|extra| fs::read(extra).expect("the archive is there")));
        fs::write(directory.join("initramfs"), initramfs).expect("the new directory can be written");
        let path = |name: &str| directory.join(name).display().to_string();
        let mut command = host.command(&format!(
            "qemu-system-x86_64 -accel tcg -machine q35 -m 256 -nodefaults -no-user-config -display none -no-reboot \
             -kernel {}/vmlinux -initrd {} \
             -chardev file,id=console,path={} -serial chardev:console \
             -chardev socket,id=shell,path={},server=on,wait=off -serial chardev:shell \
             -netdev tap,id=net,ifname={tap},script=no,downscript=no,vhost=off \
             -device virtio-net-pci,netdev=net,romfile=,mac={mac}",
            image.display(),
            path("initramfs"),
            path("console"),
            path("shell"),
        ));
        command.args(["-append", "console=ttyS0 panic=-1 quiet"]);
        let mut process = Process::spawn(command);
        let stream = eventually("the guest's serial port", BOOT_LIMIT, || {
            assert!(process.ended().is_none(), "qemu ended: {}", process.output());
            UnixStream::connect(directory.join("shell")).ok()
        });
        stream.set_read_timeout(Some(BOOT_LIMIT)).expect("a socket has a timeout");
        let guest = Self { process, shell: RefCell::new(BufReader::new(stream)), directory };
        assert_eq!(guest.line().as_deref(), Some("ready"), "{}", guest.console());
        guest.shell.borrow().get_ref().set_read_timeout(Some(COMMAND_LIMIT)).expect("a socket has a timeout");
        host.ip(&format!("link set {tap} up"));
        guest
    }

    /// Runs a command line inside, which must succeed, and returns what it printed.
    ///
    /// # Panics
    /// If it fails, or does not end.
    #[track_caller]
    pub fn run(&self, words: &str) -> String {
        let (status, output) = self.try_run(words);
        assert_eq!(status, 0, "in the guest, {words}: {output}");
        output
    }

    /// Runs a command line inside: its status and what it printed.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn try_run(&self, words: &str) -> (i32, String) {
        let line = format!("{{ {words}\n}} </dev/null; echo; echo {END} $?\n");
        self.shell.borrow_mut().get_mut().write_all(line.as_bytes()).expect("the guest runs");
        let mut output = String::new();
        loop {
            let Some(line) = self.line() else { panic!("in the guest, {words} does not end: {output}") };
            if let Some(status) = line.strip_prefix(END) {
                return (status.trim().parse().expect("a status"), output);
            }
            output += &line;
            output.push('\n');
        }
    }

    /// Leaves a command running inside; what it prints goes to a file there.
    #[track_caller]
    pub fn start(&self, words: &str, output: &str) {
        self.run(&format!("{words} >{output} 2>&1 &"));
    }

    /// What its card has received.
    #[track_caller]
    pub fn received(&self) -> Received {
        let text = self.run("cat /proc/uptime /sys/class/net/eth0/statistics/rx_bytes");
        let number = |at| text.split_whitespace().nth(at);
        let seconds = number(0).and_then(|seconds| seconds.parse().ok());
        let bytes = number(2).and_then(|bytes| bytes.parse().ok());
        let (Some(seconds), Some(bytes)) = (seconds, bytes) else { panic!("no numbers: {text}") };
        Received { seconds, bytes }
    }

    /// Packets that its stack refused for a checksum or a header.
    #[track_caller]
    pub fn refused_packets(&self) -> u64 {
        // Names in one line, values in the next; and IPv6 with a line for each.
        let program = "FNR % 2 && FILENAME ~ /snmp$/ { split($0, name); next } \
                       FILENAME ~ /snmp$/ { for (i = 2; i <= NF; i++) if (name[i] ~ /In(Csum|Hdr)Errors$/) n += $i } \
                       $1 ~ /In(Csum|Hdr)Errors$/ { n += $2 } END { print n + 0 }";
        let text = self.run(&format!("awk '{program}' /proc/net/snmp /proc/net/snmp6"));
        text.trim().parse().unwrap_or_else(|_| panic!("no number: {text}"))
    }

    /// What its kernel said.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("console")).unwrap_or_default()).into_owned()
    }

    /// The next line, or `None` if none comes.
    fn line(&self) -> Option<String> {
        let mut line = Vec::new();
        match self.shell.borrow_mut().read_until(b'\n', &mut line) {
            Ok(1..) => Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
            _ => None,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the guest's console:\n{}{}", self.console(), self.process.output());
        }
        _ = fs::remove_dir_all(&self.directory);
    }
}

/// Where kernel and initramfs are; makes what is missing.
fn image() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    run(Command::new(root.join("scripts/build-guest")));
    // Where the script puts it: a relative path counts from the checkout.
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(target).join("guest")
}
