//! What goes over the API. Field names carry their unit; a field that has no value is `null`.

use serde::{Deserialize, Serialize};

/// The daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// The commit it was built from.
    pub commit: String,
    /// Name of the switch.
    pub switch: String,
    /// Fingerprint of the configuration in effect.
    pub config_hash: String,
    /// Configurations applied since the start.
    pub config_generation: u64,
    /// Worker threads.
    pub workers: usize,
    /// Ports.
    pub ports: usize,
    /// Ports that pass frames.
    pub ports_up: usize,
    /// Frames unaccounted for; anything but 0 is a fault of Lockgate.
    pub accounting_error_frames: u64,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// `netdev`, `veth`, `tap` or `internal`.
    pub kind: String,
    /// `up`, `waiting`, `failed` or `disabled`.
    pub state: String,
    /// Why it is not up.
    pub reason: Option<String>,
    /// Its interface, while it has one.
    pub interface: Option<String>,
    /// `af_xdp`, `lane` or `tap`, while it has a device.
    pub driver: Option<String>,
    /// `native` or `generic`, for AF_XDP.
    pub xdp_mode: Option<String>,
    /// Whether the kernel shares its buffers with the device.
    pub zerocopy: bool,
    /// Its VLANs.
    pub vlan: String,
    /// MTU of the device.
    pub mtu_bytes: Option<u32>,
    /// Address of the far end, where it can be read.
    pub mac: Option<String>,
    /// From the port into the switch.
    pub ingress: Traffic,
    /// From the switch to the port.
    pub egress: Traffic,
}

/// A port group; traffic is that of all its ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its VLANs.
    pub vlan: String,
    /// Whether its ports are kept from each other.
    pub isolated: bool,
    /// How many ports it has.
    pub ports: usize,
    /// How many of them pass frames.
    pub ports_up: usize,
    /// From the ports into the switch.
    pub ingress: Traffic,
    /// From the switch to the ports.
    pub egress: Traffic,
}

/// Totals of one direction. A super-frame counts as its segments, bytes are those of the wire without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Frames that passed.
    pub frames: u64,
    /// Bytes that passed.
    pub bytes: u64,
    /// Frames dropped.
    pub dropped_frames: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
}

/// The MAC table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fdb {
    /// Most learned entries.
    pub limit: usize,
    /// Its entries, by VLAN and address.
    pub entries: Vec<FdbEntry>,
}

/// One entry of the MAC table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FdbEntry {
    /// Its VLAN.
    pub vlan: u16,
    /// Its address.
    pub mac: String,
    /// Its port.
    pub port: String,
    /// Whether it never moves nor ages.
    pub is_static: bool,
    /// Time since it was last used, for a learned one.
    pub idle_seconds: Option<f64>,
}

/// The shaper of one direction of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shaper {
    /// The port.
    pub port: String,
    /// `ingress` (port → switch) or `egress` (switch → port).
    pub direction: String,
    /// Who set it: `group` or `port`.
    pub set_by: String,
    /// Long-term rate.
    pub average_bits_per_second: u64,
    /// Rate of a burst; none means line rate.
    pub peak_bits_per_second: Option<u64>,
    /// Depth of the credit bucket.
    pub burst_bytes: u64,
    /// How long a frame should wait at most.
    pub max_delay_seconds: f64,
    /// Bytes charged per frame beyond its length.
    pub overhead_bytes: u64,
    /// What would pass at once; negative while a super-frame is paid off.
    pub credit_bytes: i64,
    /// Bytes waiting.
    pub queue_bytes: u64,
    /// Frames waiting.
    pub queue_frames: u64,
    /// Most bytes that were seen waiting.
    pub queue_high_water_bytes: u64,
    /// Frames that waited, in total.
    pub delayed_frames: u64,
    /// Time during which frames waited, in total.
    pub throttled_seconds: f64,
}

/// Frames dropped at one port for one reason; only what occurred is listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    /// The port.
    pub port: String,
    /// `ingress` (port → switch) or `egress` (switch → port).
    pub direction: String,
    /// The reason, as in the metrics.
    pub reason: String,
    /// What it means.
    pub explanation: String,
    /// How many.
    pub frames: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason, for people.
    pub error: String,
}
