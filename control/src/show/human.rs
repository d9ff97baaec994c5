//! Quantities for people: few digits, the unit with them. Sizes are binary, rates decimal, as in the topology file.

use lockgate_dataplane::units::BitsPerSecond;

/// `612 B`, `1.5 KiB`, `20.0 GiB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// The same with a sign.
pub fn signed_bytes(value: i64) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", bytes(value.unsigned_abs()))
}

/// A configured rate, exactly as the topology file may spell it: `1500 kbit/s`.
pub fn rate(bits_per_second: u64) -> String {
    BitsPerSecond::new(bits_per_second)
        .map_or_else(|| format!("{bits_per_second} bit/s"), |rate| rate.to_string())
}

/// `12 µs`, `20.0 ms`, `1.5 s`, `300 s`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s if s > 0.0 => format!("{:.0} µs", s * 1e6),
        _ => "0 s".to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "one digit after the point is printed")]
fn scaled(value: u64, base: u64, units: &[&str]) -> String {
    let (mut scale, mut unit) = (1, 0);
    while value / scale >= base && unit + 1 < units.len() {
        scale *= base;
        unit += 1;
    }
    if unit == 0 {
        format!("{value} {}", units[0])
    } else {
        format!("{:.1} {}", value as f64 / scale as f64, units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_one_digit_and_never_overflow() {
        let spelt = [0, 1023, 1024, 1536, 20 << 30, u64::MAX].map(bytes);
        assert_eq!(spelt, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "20.0 GiB", "16.0 EiB"]);
        assert_eq!(signed_bytes(-2048), "-2.0 KiB");
    }

    #[test]
    fn rates_are_spelt_as_in_the_file() {
        assert_eq!([100_000_000, 1_500_000, 64_001].map(rate), ["100 Mbit/s", "1500 kbit/s", "64001 bit/s"]);
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        assert_eq!(
            [0.0, 0.000_012, 0.02, 1.5, 300.0].map(seconds),
            ["0 s", "12 µs", "20.0 ms", "1.5 s", "300 s"]
        );
    }
}
