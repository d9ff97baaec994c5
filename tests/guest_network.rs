//! A virtual machine on a tap that its hypervisor opened, beside a container and the host: its offloads stay on, its
//! limits hold both ways, every packet it receives is sound.

use std::time::Duration;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::guest::{self, Guest};
use lockgate_tests::netns::Netns;
use lockgate_tests::process::Process;
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Report, UDP_PAYLOAD, bits, received_rate};

const GUEST_MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 0x01]);
const GUEST: &str = "10.77.0.1";
const CONTAINER: &str = "10.77.0.2";
const HOST: &str = "10.77.0.9";
/// What an emulated processor can fill.
const CAP: f64 = 50e6;
/// How far the mean may be from the cap.
const TOLERANCE: f64 = 0.02;
const SETTLE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(3);
const SECONDS: u32 = 5;

/// A switch with a virtual machine, a container and the host, capped at the virtual machine's port.
struct Lab {
    host: Netns,
    container: Netns,
}

impl Lab {
    fn new() -> Self {
        Self { host: Netns::new(), container: Netns::new() }
    }

    fn boot(&self) -> Guest {
        let guest = Guest::boot(&self.host, "tap-vm", GUEST_MAC, None);
        guest.run(&format!(
            "ip addr add {GUEST}/24 dev eth0; ip addr add fd77::1/64 dev eth0 nodad; ip link set eth0 up"
        ));
        guest
    }

    fn start(&self, steering: &str) -> Switch<'_> {
        Switch::start(
            &self.host,
            &format!(
                "port_groups: {{ lan: {{ vlan: 10 }} }}\nports:\n  \
                 vm: {{ group: lan, netdev: tap-vm, mac: \"{GUEST_MAC}\"{steering}, \
                 shaping: {{ ingress: {{ average: 50 Mbit/s }}, egress: {{ average: 50 Mbit/s }} }} }}\n  \
                 container: {{ group: lan, veth: {{ netns: {}, interface: eth0, address: [{CONTAINER}/24, \"fd77::2/64\"] }} }}\n  \
                 host: {{ group: lan, internal: {{ interface: lg-host, address: [{HOST}/24, \"fd77::9/64\"] }} }}\n",
                self.container.name()
            ),
        )
    }
}

/// Whether the guest receives or sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Guest → container.
    Ingress,
    /// Container → guest.
    Egress,
}

impl Lab {
    /// Bits per second on the wire of a TCP stream. The receiver's interface may count a super-frame's headers once, so
    /// this follows from its payload: 1448 bytes in each full frame of 1514.
    #[track_caller]
    fn tcp(&self, guest: &Guest, way: Way) -> f64 {
        let client =
            |address: &str| format!("iperf3 -J --connect-timeout 3000 -O 1 -t {SECONDS} -c {address}");
        let output = match way {
            Way::Ingress => {
                let _server = Process::spawn(self.container.command("iperf3 -s -1"));
                self.container.wait_for_listener(5201);
                guest.run(&client(CONTAINER))
            }
            Way::Egress => {
                serve(guest);
                Process::spawn(self.container.command(&client(GUEST))).finish(Duration::from_secs(20))
            }
        };
        Report::read(&output).goodput_bits_per_second * 1514.0 / 1448.0
    }

    /// Bits per second that the receiver's interface counts of UDP at twice the cap.
    #[track_caller]
    fn udp(&self, guest: &Guest, way: Way) -> f64 {
        let client = |address: &str| {
            format!(
                "iperf3 --connect-timeout 3000 -u -l {UDP_PAYLOAD} -b {} -t {SECONDS} -c {address}",
                2.0 * CAP
            )
        };
        match way {
            Way::Ingress => {
                let _server = Process::spawn(self.container.command("iperf3 -s -1"));
                self.container.wait_for_listener(5201);
                guest.start(&client(CONTAINER), "/tmp/client");
                received_rate(&self.container, "eth0", SETTLE, WINDOW)
            }
            Way::Egress => {
                serve(guest);
                let _client = Process::spawn(self.container.command(&client(GUEST)));
                std::thread::sleep(2 * SETTLE);
                // By the guest's own clock: its answers are late under load.
                let before = guest.received();
                std::thread::sleep(WINDOW);
                let after = guest.received();
                bits(after.bytes - before.bytes) / (after.seconds - before.seconds)
            }
        }
    }

    fn assert_connected(&self, guest: &Guest) {
        for address in [CONTAINER, HOST, "fd77::2", "fd77::9"] {
            guest.run(&format!("ping -c 2 -W 1 -s 1400 {address}"));
        }
        let replies = self.host.ping(GUEST.parse().unwrap(), 2, 1472);
        assert_eq!(replies.len(), 2, "from the host to the guest");
    }

    /// Runs every load both ways between the guest and the container and holds it against the cap.
    fn assert_capped(&self, switch: &Switch<'_>, guest: &Guest) {
        for (way, load) in
            [(Way::Ingress, "TCP"), (Way::Ingress, "UDP"), (Way::Egress, "TCP"), (Way::Egress, "UDP")]
        {
            let measured = if load == "TCP" { self.tcp(guest, way) } else { self.udp(guest, way) };
            let error = measured / CAP - 1.0;
            println!("{way:?} {load}: {:+.2} %", error * 100.0);
            assert!(error.abs() <= TOLERANCE, "{way:?} {load}: {measured:.0} of {CAP:.0} bit/s");
        }
        let refused =
            [guest.refused_packets(), self.container.refused_packets(), self.host.refused_packets()];
        assert_eq!(refused, [0; 3], "packets refused by guest, container and host");
        switch.assert_sound();
    }
}

/// A server for one transfer.
fn serve(guest: &Guest) {
    guest.run("killall -q iperf3; iperf3 -s -1 -D; until netstat -tln | grep -q :5201; do sleep 0.1; done");
}

fn ring_can_run() -> bool {
    require::root("guest") && require::ring_can_run("guest", guest::obstacle())
}

#[test]
fn a_virtual_machine_talks_to_a_container_and_the_host_at_its_cap_with_its_offloads_on() {
    if !ring_can_run() {
        return;
    }
    let lab = Lab::new();
    let guest = lab.boot();
    let switch = lab.start("");
    let features = guest.run("ethtool -k eth0");
    for on in ["tx-checksumming: on", "tcp-segmentation-offload: on", "generic-receive-offload: on"] {
        assert!(features.contains(on), "{features}");
    }
    lab.assert_connected(&guest);
    lab.assert_capped(&switch, &guest);
}
