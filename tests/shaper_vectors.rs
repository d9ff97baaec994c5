//! VMware's average, peak and burst through the whole switch: from full credit a sender that always has another frame gets
//! the peak for `T = 8B / (p − r)`, then the average; after `8B / r` of silence the credit is full again. A KB of the
//! burst is 1024 bytes.

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::state::{ClassTable, FdbSettings, ForwardingState, Shaping};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};
use lockgate_tests::frames::{self, FULL, station};
use lockgate_tests::rig::Rig;
use lockgate_tests::sim::host_ports;

const SENDER: PortId = PortId(0);
const RECEIVER: PortId = PortId(1);
const FRAME: u64 = FULL as u64;
/// What the peak bucket lets out at once: a millisecond of it and the largest frame.
const PEAK_WINDOW: Nanos = Nanos::from_millis(1);

struct Vector {
    average_kbit: u64,
    peak_kbit: u64,
    burst: Bytes,
    /// How long a burst from full credit lasts.
    duration: Nanos,
    /// What leaves in it.
    bytes: u64,
    /// How long the credit takes to fill.
    refill: Nanos,
}

const VECTORS: [Vector; 3] = [
    Vector {
        average_kbit: 100_000,
        peak_kbit: 1_000_000,
        burst: Bytes::from_kib(102_400),
        duration: Nanos::new(932_067_555),
        bytes: 116_508_444,
        refill: Nanos::new(8_388_608_000),
    },
    Vector {
        average_kbit: 2000,
        peak_kbit: 4000,
        burst: Bytes::from_kib(2000),
        duration: Nanos::new(8_192_000_000),
        bytes: 4_096_000,
        refill: Nanos::new(8_192_000_000),
    },
    Vector {
        average_kbit: 1000,
        peak_kbit: 2000,
        burst: Bytes::from_kib(1024),
        duration: Nanos::new(8_388_608_000),
        bytes: 2_097_152,
        refill: Nanos::new(8_388_608_000),
    },
];

#[test]
fn a_full_burst_leaves_at_the_peak_for_its_time_and_no_longer() {
    for (vector, direction) in every_vector() {
        let mut port = SaturatedPort::new(&vector.shaping(), direction);
        let half = Nanos::new(vector.duration.get() / 2);
        let at_peak = kbit(vector.peak_kbit).bytes_in(half).get();
        let head_start = kbit(vector.peak_kbit).bytes_in(PEAK_WINDOW).get() + 1518;
        let early = port.run_for(half);
        assert!(
            (at_peak..=at_peak + head_start).contains(&early),
            "{early} bytes in the first half of the burst"
        );

        let burst = early + port.run_for(Nanos::new(vector.duration.get() - half.get()));
        assert!(burst.abs_diff(vector.bytes) <= FRAME, "{burst} bytes in the burst, not {}", vector.bytes);

        let after = port.run_for(Nanos::from_secs(10));
        let average = kbit(vector.average_kbit).bytes_in(Nanos::from_secs(10)).get();
        assert!(after.abs_diff(average) <= FRAME, "{after} bytes in the ten seconds after it, not {average}");
    }
}

#[test]
fn the_credit_is_full_again_after_its_time_and_not_before() {
    for (vector, direction) in every_vector() {
        let mut port = SaturatedPort::new(&vector.shaping(), direction);
        // From the end of the burst on the port lives on its average: what it saves then, it may burst with.
        for (pause, share) in [(vector.refill, 1), (Nanos::new(vector.refill.get() / 2), 2)] {
            port.run_for(Nanos::new(2 * vector.duration.get()));
            port.pause(pause);
            let burst = port.run_for(Nanos::new(vector.duration.get() / share));
            let wanted = vector.bytes / share;
            assert!(
                burst.abs_diff(wanted) <= 2 * FRAME,
                "{burst} bytes after {pause} of silence, not {wanted}"
            );
        }
    }
}

/// Without a peak the burst leaves as fast as the port takes it; with a peak that equals the average there is none.
#[test]
fn the_peak_decides_how_fast_a_burst_leaves() {
    let burst = Bytes::new(1_000_000);
    let at_once = |peak, direction| {
        let shaping = Shaping { peak, burst, ..VECTORS[0].shaping() };
        SaturatedPort::new(&shaping, direction).run_for(Nanos::ZERO)
    };
    for direction in Direction::ALL {
        let sent = at_once(None, direction);
        assert!((burst.get() - FRAME..=burst.get()).contains(&sent), "{sent} bytes at once");
        let sent = at_once(Some(kbit(100_000)), direction);
        let head_start = kbit(100_000).bytes_in(PEAK_WINDOW).get() + 1518;
        assert!((head_start - FRAME..=head_start).contains(&sent), "{sent} bytes at once");
    }
}

fn every_vector() -> impl Iterator<Item = (&'static Vector, Direction)> {
    VECTORS.iter().flat_map(|vector| Direction::ALL.map(|direction| (vector, direction)))
}

impl Vector {
    fn shaping(&self) -> Shaping {
        Shaping {
            average: kbit(self.average_kbit),
            peak: Some(kbit(self.peak_kbit)),
            burst: self.burst,
            max_delay: Nanos::from_millis(20),
            overhead: Bytes::new(0),
        }
    }
}

/// A switch with one shaped port and a sender that always has another frame, without ever overflowing the queue.
struct SaturatedPort {
    rig: Rig,
    now: Instant,
    frame: Vec<u8>,
    waiting: usize,
}

impl SaturatedPort {
    /// Fewer than any queue holds.
    const WAITING: usize = 8;

    fn new(shaping: &Shaping, direction: Direction) -> Self {
        let mut ports = host_ports(2);
        match direction {
            Direction::Ingress => ports[SENDER.index()].ingress = Some(*shaping),
            Direction::Egress => ports[RECEIVER.index()].egress = Some(*shaping),
        }
        let fdb = FdbSettings { capacity: 16, age: Nanos::from_secs(300) };
        let state = ForwardingState::new(ports, ClassTable::default(), fdb);
        let pool = PoolSize { small: 64, large: 0 };
        let frame = frames::ipv4_udp(station(2), station(1), 0, FULL);
        Self { rig: Rig::new(state, pool, 1500), now: Instant::ZERO, frame, waiting: 0 }
    }

    /// Lets time pass; how many bytes left meanwhile, the last instant included.
    fn run_for(&mut self, span: Nanos) -> u64 {
        let end = self.now + span;
        let mut bytes = 0;
        loop {
            let sent = self.round();
            bytes += sent;
            if sent == 0 {
                match self.rig.next_deadline() {
                    Some(due) if due <= end => self.now = due,
                    _ => break,
                }
            }
        }
        self.now = end;
        bytes
    }

    /// Sends nothing for `span`, once what waits has left.
    fn pause(&mut self, span: Nanos) {
        while self.waiting > 0 {
            self.now = self.rig.next_deadline().expect("frames wait for credit");
            self.rig.settle(self.now);
            self.waiting -= self.rig.take_all(RECEIVER).len();
        }
        self.now += span;
    }

    fn round(&mut self) -> u64 {
        while self.waiting < Self::WAITING {
            self.rig.send(SENDER, self.frame.clone());
            self.waiting += 1;
        }
        self.rig.settle(self.now);
        let sent = self.rig.take_all(RECEIVER).len();
        self.waiting -= sent;
        sent as u64 * FRAME
    }
}

fn kbit(rate: u64) -> BitsPerSecond {
    BitsPerSecond::new(rate * 1000).expect("a rate the switch takes")
}
