//! `shaping:` average, peak and burst of a port, one triple for each direction.

use lockgate_dataplane::id::Direction;
use lockgate_dataplane::state::Shaping;
use lockgate_dataplane::time::Nanos;
use lockgate_dataplane::units::{BitsPerSecond, Bytes};

use super::diagnostic::{Located, Place};
use super::reader::{Field, Reader, Schema};
use super::tree::Value;
use super::units;

/// A burst that is not written holds this much of the average rate…
const DEFAULT_BURST_TIME: Nanos = Nanos::from_millis(10);
/// …and at least this much.
const DEFAULT_BURST_MIN: Bytes = Bytes::from_kib(64);
const DEFAULT_MAX_DELAY: Nanos = Nanos::from_millis(20);

const BURST_MIN: Bytes = Bytes::new(1);
const BURST_MAX: Bytes = Bytes::from_kib(4 << 20);
/// A burst of more of the average rate than this lets the limit go unnoticed for as long.
const LONG_BURST: Nanos = Nanos::from_secs(1);
const MAX_DELAY_MIN: Nanos = Nanos::from_micros(100);
const MAX_DELAY_MAX: Nanos = Nanos::from_secs(10);
const OVERHEAD_MAX: Bytes = Bytes::new(256);

/// Ethernet header and one tag: what a frame has beyond the MTU.
const HEADER_BYTES: u64 = 18;

const SCHEMA: Schema =
    Schema { known: &["average", "peak", "burst", "max_delay", "overhead"], later: &["start_empty"] };

/// What was written for the two directions.
#[derive(Clone, Debug, Default)]
pub struct DirectionsConfig {
    /// From the port into the switch.
    pub ingress: Option<ShapingConfig>,
    /// From the switch to the port.
    pub egress: Option<ShapingConfig>,
}

/// What was written for one direction.
#[derive(Clone, Debug)]
pub struct ShapingConfig {
    /// The key of the direction.
    pub key: Place,
    average: Option<Located<BitsPerSecond>>,
    peak: Option<Located<BitsPerSecond>>,
    burst: Option<Located<Bytes>>,
    max_delay: Option<Located<Nanos>>,
    overhead: Option<Located<Bytes>>,
}

/// Reads `{ ingress: …, egress: … }`.
pub fn read_directions(reader: &mut Reader<'_>, field: Field<'_>) -> DirectionsConfig {
    const DIRECTIONS: Schema = Schema { known: &["ingress", "egress"], later: &[] };
    let Some(fields) = reader.fields(field, &DIRECTIONS) else { return DirectionsConfig::default() };
    if matches!(&field.node.value, Value::Mapping(entries) if entries.is_empty()) {
        reader.error(field.key, format!("`{}` has no direction", field.name)).help(format!(
            "write `ingress` for {}, `egress` for {}, or both",
            arrow(Direction::Ingress),
            arrow(Direction::Egress)
        ));
    }
    let mut read = |direction: Direction| {
        fields.get(direction.name()).and_then(|field| ShapingConfig::read(&mut reader.part(direction), field))
    };
    DirectionsConfig { ingress: read(Direction::Ingress), egress: read(Direction::Egress) }
}

impl DirectionsConfig {
    /// What was written for `direction`.
    pub fn get(&self, direction: Direction) -> Option<&ShapingConfig> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

impl ShapingConfig {
    fn read(reader: &mut Reader<'_>, field: Field<'_>) -> Option<Self> {
        let fields = reader.fields(field, &SCHEMA)?;
        if fields.lacks("average") {
            let (place, problem) = match fields.get("peak") {
                Some(peak) => (peak.key, "`peak` without `average`"),
                None => (field.key, "there is no `average`"),
            };
            reader
                .error(place, problem)
                .help("`average` is the rate that the port is held to in the long run");
        }
        let average = fields.get("average").and_then(|field| reader.value(field, units::rate));
        let peak = fields.get("peak").and_then(|field| reader.value(field, units::rate));
        let burst =
            fields.get("burst").and_then(|field| reader.value(field, units::size(BURST_MIN, BURST_MAX)));
        let config = Self {
            key: field.key,
            average,
            peak,
            burst,
            max_delay: fields
                .get("max_delay")
                .and_then(|field| reader.value(field, units::duration(MAX_DELAY_MIN, MAX_DELAY_MAX))),
            overhead: fields
                .get("overhead")
                .and_then(|field| reader.value(field, units::size(Bytes::new(0), OVERHEAD_MAX))),
        };
        config.check_triple(reader);
        Some(config)
    }

    /// What the three numbers must be to each other.
    fn check_triple(&self, reader: &mut Reader<'_>) {
        let Some(average) = self.average else { return };
        if let Some(peak) = self.peak.filter(|peak| peak.value < average.value) {
            reader
                .error(peak.place, format!("`peak` {} is below `average` {}", peak.value, average.value))
                .label("the lower one")
                .related(average.place, "average")
                .help("a peak is the rate of a burst: at least the average");
        }
        let Some(burst) = self.burst else { return };
        let short = average.value.bytes_in(DEFAULT_BURST_TIME);
        if burst.value < short {
            reader
                .warning(burst.place, format!("`burst` {} is less than 10 ms of `average`", burst.value))
                .help(format!("TCP may stay below the rate; 10 ms are {short}, the default"));
        }
        if burst.value > average.value.bytes_in(LONG_BURST) {
            let felt_after = average.value.time_for(burst.value);
            reader
                .warning(burst.place, format!("`burst` {} is more than a second of `average`", burst.value))
                .help(format!(
                    "a port that was idle is not held to its rate for up to {:.1} s",
                    felt_after.as_secs_f64()
                ));
        }
    }

    /// Refuses a burst that the largest frame does not fit into: it would wait for ever and hold up those behind it.
    pub fn check_burst(&self, reader: &mut Reader<'_>, mtu_bytes: u32, whose: &str) {
        let largest = self.largest_frame(mtu_bytes);
        let Some(burst) = self.burst.filter(|burst| burst.value < largest) else { return };
        reader
            .error(
                burst.place,
                format!(
                    "`burst` {} is smaller than the largest frame of {whose}, {} B",
                    burst.value,
                    largest.get()
                ),
            )
            .help(format!(
                "MTU {mtu_bytes}, Ethernet header, tag and overhead must fit: write at least `{} B`",
                largest.get()
            ));
    }

    /// Fills in the defaults; `None` if there is no valid average.
    pub fn resolve(&self, mtu_bytes: u32) -> Option<Shaping> {
        let average = self.average?.value;
        let default_burst =
            average.bytes_in(DEFAULT_BURST_TIME).max(DEFAULT_BURST_MIN).max(self.largest_frame(mtu_bytes));
        Some(Shaping {
            average,
            peak: self.peak.map(|peak| peak.value),
            burst: self.burst.map_or(default_burst, |burst| burst.value),
            max_delay: self.max_delay.map_or(DEFAULT_MAX_DELAY, |delay| delay.value),
            overhead: self.overhead.map_or(Bytes::new(0), |overhead| overhead.value),
        })
    }

    fn largest_frame(&self, mtu_bytes: u32) -> Bytes {
        let overhead = self.overhead.map_or(0, |overhead| overhead.value.get());
        Bytes::new(u64::from(mtu_bytes) + HEADER_BYTES + overhead)
    }
}

/// The arrow alone.
fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "port → switch",
        Direction::Egress => "switch → port",
    }
}
