//! iperf3 between two namespaces, and rates measured by the receiver's own interface.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::clock::{Stopwatch, eventually};
use crate::netns::Netns;
use crate::process::Process;

/// Grace beyond the time a transfer was asked to take.
const GRACE: Duration = Duration::from_secs(15);
const IPERF_PORT: u16 = 5201;
/// Fits an MTU of 1500 over IPv6 too.
pub const UDP_PAYLOAD: usize = 1400;

/// What a transfer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One TCP stream, as fast as it goes.
    Tcp,
    /// UDP datagrams of [`UDP_PAYLOAD`] bytes at this many bits of payload per second.
    Udp {
        /// The rate.
        bits_per_second: u64,
    },
}

/// A running iperf3, client and server.
#[derive(Debug)]
pub struct Transfer {
    client: Process,
    _server: Process,
    seconds: u32,
}

/// What iperf3 says at its end.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Payload that arrived.
    pub received_bytes: u64,
    /// Payload per second that arrived, in bits.
    pub goodput_bits_per_second: f64,
}

impl Transfer {
    /// Starts sending from one namespace to an address of another.
    #[track_caller]
    pub fn start(from: &Netns, to: &Netns, address: IpAddr, load: Load, seconds: u32) -> Self {
        // One test and it ends, so each transfer has a server of its own.
        let server = Process::spawn(to.command("iperf3 -s -1"));
        to.wait_for_listener(IPERF_PORT);
        let load = match load {
            Load::Tcp => String::new(),
            Load::Udp { bits_per_second } => format!("-u -l {UDP_PAYLOAD} -b {bits_per_second}"),
        };
        let client =
            from.command(&format!("iperf3 -J --connect-timeout 3000 -c {address} -t {seconds} {load}"));
        Self { client: Process::spawn(client), _server: server, seconds }
    }

    /// Waits for the end.
    #[track_caller]
    pub fn finish(mut self) -> Report {
        self.client.wait(Duration::from_secs(self.seconds.into()) + GRACE);
        Report::read(&self.client.output())
    }
}

impl Report {
    /// Reads what `iperf3 -J` printed.
    ///
    /// # Panics
    /// If that is an error, or nothing arrived.
    #[track_caller]
    pub fn read(output: &str) -> Self {
        // A warning may precede it.
        let text = &output[output.find('{').unwrap_or(0)..];
        let report: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("iperf3 said: {output}"));
        assert!(report["error"].is_null(), "iperf3: {}", report["error"]);
        let received = &report["end"]["sum_received"];
        let (Some(received_bytes), Some(goodput_bits_per_second)) =
            (received["bytes"].as_u64(), received["bits_per_second"].as_f64())
        else {
            panic!("iperf3 reported nothing received: {output}")
        };
        Self { received_bytes, goodput_bits_per_second }
    }
}

/// Bits per second of Ethernet frames that `interface` of `receiver` counts over `window`, after waiting for the load to
/// arrive and then for `settle`.
#[track_caller]
pub fn received_rate(receiver: &Netns, interface: &str, settle: Duration, window: Duration) -> f64 {
    wait_for_load(receiver, interface);
    sleep(settle);
    let (watch, before) = (Stopwatch::start(), receiver.counters(interface).rx_bytes);
    sleep(window);
    let (after, elapsed) = (receiver.counters(interface).rx_bytes, watch.elapsed());
    bits(after - before) / elapsed.as_secs_f64()
}

/// Waits until `interface` of `receiver` has counted more than the handful of frames that a transfer starts with, and
/// returns its count of bytes.
#[track_caller]
pub fn wait_for_load(receiver: &Netns, interface: &str) -> u64 {
    const LOAD_BYTES: u64 = 50_000;
    let before = receiver.counters(interface).rx_bytes;
    eventually("the load to arrive", Duration::from_secs(5), || {
        let now = receiver.counters(interface).rx_bytes;
        (now - before > LOAD_BYTES).then_some(now)
    })
}

/// Bits of `bytes`, for arithmetic with rates.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, which no test reaches")]
pub fn bits(bytes: u64) -> f64 {
    bytes as f64 * 8.0
}
