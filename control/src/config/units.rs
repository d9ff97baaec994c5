//! Quantities with their unit: rates, sizes, durations.
//!
//! A number without a unit is refused: the tools next door read it as kbit/s, bit/s or byte/s, and a limit that is wrong
//! by 8 or by 1000 looks right in the file. Rates are decimal, sizes are decimal (kB) or binary (KiB) as their unit
//! says. Decimal fractions are exact: a value that is not a whole number of bits, bytes or nanoseconds is refused rather
//! than rounded.

use lockgate_dataplane::time::Nanos;
use lockgate_dataplane::units::{BitsPerSecond, Bytes, FramesPerSecond};

use super::scalar::{Fault, Scalar};

/// A kind of quantity: its units with their factor to the base unit, and how to talk about it.
struct Dimension {
    noun: &'static str,
    base: &'static str,
    units: &'static [(&'static str, u64)],
    /// What somebody would write.
    example: &'static str,
    /// What a bare number most likely means: if below 10 000, and else.
    likely: [[&'static str; 2]; 2],
}

const RATE: Dimension = Dimension {
    noun: "a rate",
    base: "bit/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("B/s", 8),
        ("kB/s", 8_000),
        ("MB/s", 8_000_000),
        ("GB/s", 8_000_000_000),
    ],
    example: "100 Mbit/s",
    likely: [["Mbit/s", "MB/s"], ["bit/s", "kbit/s"]],
};

const FRAME_RATE: Dimension = Dimension {
    noun: "a rate of frames",
    base: "frames/s",
    units: &[("frames/s", 1), ("kframes/s", 1_000)],
    example: "1000 frames/s",
    likely: [["frames/s", "kframes/s"], ["frames/s", "kframes/s"]],
};

const SIZE: Dimension = Dimension {
    noun: "a size",
    base: "B",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ],
    example: "64 KiB",
    likely: [["KiB", "kB"], ["B", "KiB"]],
};

const DURATION: Dimension = Dimension {
    noun: "a duration",
    base: "ns",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    example: "20 ms",
    likely: [["ms", "s"], ["us", "ms"]],
};

/// Reads a rate that a shaper takes, such as `100 Mbit/s` or `12.5 MB/s`.
pub fn rate(scalar: &Scalar) -> Result<BitsPerSecond, Fault> {
    let bits = quantity(&scalar.text, &RATE)?;
    BitsPerSecond::new(bits).ok_or_else(|| {
        Fault::new(format!(
            "`{}` is out of range: rates go from {} to {}",
            scalar.text,
            BitsPerSecond::MIN,
            BitsPerSecond::MAX
        ))
    })
}

/// Reads a rate of frames, such as `1000 frames/s`.
pub fn frame_rate(scalar: &Scalar) -> Result<FramesPerSecond, Fault> {
    let frames = quantity(&scalar.text, &FRAME_RATE)?;
    FramesPerSecond::new(frames).ok_or_else(|| {
        let (min, max) = (FramesPerSecond::MIN, FramesPerSecond::MAX);
        Fault::new(format!("`{}` is out of range: {min} to {max}", scalar.text))
    })
}

/// Reads a size of `min` to `max`, such as `1 MiB`.
pub fn size(min: Bytes, max: Bytes) -> impl Fn(&Scalar) -> Result<Bytes, Fault> {
    move |scalar| {
        let bytes = Bytes::new(quantity(&scalar.text, &SIZE)?);
        let fault = || Fault::new(format!("`{}` is out of range: {min} to {max}", scalar.text));
        (min..=max).contains(&bytes).then_some(bytes).ok_or_else(fault)
    }
}

/// Reads a duration of `min` to `max`, such as `5 ms`.
pub fn duration(min: Nanos, max: Nanos) -> impl Fn(&Scalar) -> Result<Nanos, Fault> {
    move |scalar| {
        let nanos = Nanos::new(quantity(&scalar.text, &DURATION)?);
        let fault = || Fault::new(format!("`{}` is out of range: {min} to {max}", scalar.text));
        (min..=max).contains(&nanos).then_some(nanos).ok_or_else(fault)
    }
}

/// Reads a number and its unit; the answer is in the base unit.
fn quantity(text: &str, dimension: &Dimension) -> Result<u64, Fault> {
    let Dimension { noun, base, units, example, .. } = dimension;
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..number_end], text[number_end..].trim_start());
    if number.len() > MAX_DIGITS && number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(
            Fault::new(format!("`{text}` is out of range")).help("write fewer digits and a larger unit")
        );
    }
    let (mantissa, decimals) = decimal(number).ok_or_else(|| {
        Fault::new(format!("`{text}` is not {noun}"))
            .help(format!("write a number in plain decimal digits and a unit, such as `{example}`"))
    })?;
    if unit.is_empty() {
        let [one, other] = dimension.likely[usize::from(mantissa >= 10_000)];
        return Err(Fault::new(format!("`{text}` has no unit: `{number} {one}` or `{number} {other}`?"))
            .help(format!("{noun} needs one of {}", list(units))));
    }
    // No guess at what was meant: the nearest spelling may be wrong by 8 (`mbps` is closer to `MB/s` than to `Mbit/s`).
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(|| {
        Fault::new(format!("`{text}`: `{unit}` is not a unit of {noun}; the units are {}", list(units)))
    })?;
    let scaled = u128::from(mantissa) * u128::from(*factor);
    let divisor = 10_u128.pow(decimals);
    if scaled % divisor != 0 {
        return Err(
            Fault::new(format!("`{text}` is not a whole number of {base}")).help("write fewer decimals")
        );
    }
    u64::try_from(scaled / divisor).map_err(|_| Fault::new(format!("`{text}` is too large")))
}

/// Digits that a quantity may have, so that nothing overflows.
const MAX_DIGITS: usize = 18;

/// Splits `12.50` into 1250 and the number of decimals, 2.
fn decimal(number: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits_only = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let ambiguous = whole.len() > 1 && whole.starts_with('0');
    if !digits_only(whole) || !digits_only(fraction) || ambiguous || whole.len() + fraction.len() > MAX_DIGITS
    {
        return None;
    }
    let mantissa = format!("{whole}{fraction}").parse().ok()?;
    Some((mantissa, u32::try_from(fraction.len()).ok()?))
}

fn list(units: &[(&str, u64)]) -> String {
    units.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(text: &str) -> Result<u64, String> {
        quantity(text, &RATE).map_err(|fault| fault.to_string())
    }

    fn bytes(text: &str) -> Result<u64, String> {
        quantity(text, &SIZE).map_err(|fault| fault.to_string())
    }

    #[test]
    fn every_unit_means_what_it_says() {
        for (text, expected) in [
            ("1 bit/s", 1),
            ("64 kbit/s", 64_000),
            ("100 Mbit/s", 100_000_000),
            ("100Mbit/s", 100_000_000),
            ("2.5 Gbit/s", 2_500_000_000),
            ("1 B/s", 8),
            ("1 kB/s", 8_000),
            ("12.5 MB/s", 100_000_000),
            ("1 GB/s", 8_000_000_000),
        ] {
            assert_eq!(bits(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("1514 B", 1514),
            ("1 kB", 1000),
            ("1 KiB", 1024),
            ("1.5 KiB", 1536),
            ("1 MiB", 1 << 20),
            ("1 MB", 1_000_000),
            ("1 GiB", 1 << 30),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("5 ms", 5_000_000),
            ("300 s", 300_000_000_000),
            ("1 us", 1000),
            ("1 µs", 1000),
            ("2 min", 120_000_000_000),
        ] {
            assert_eq!(quantity(text, &DURATION).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_its_two_likely_meanings() {
        assert_eq!(bits("100").unwrap_err(), "`100` has no unit: `100 Mbit/s` or `100 MB/s`?");
        assert_eq!(
            bits("100000000").unwrap_err(),
            "`100000000` has no unit: `100000000 bit/s` or `100000000 kbit/s`?"
        );
        assert_eq!(bytes("512").unwrap_err(), "`512` has no unit: `512 KiB` or `512 kB`?");
        assert_eq!(
            quantity("20", &DURATION).unwrap_err().to_string(),
            "`20` has no unit: `20 ms` or `20 s`?"
        );
    }

    #[test]
    fn spellings_that_mean_different_things_elsewhere_are_refused_with_the_list() {
        for text in [
            "100M",
            "100 Mi",
            "100 Mbit",
            "100 MB",
            "100 m",
            "100 Mbps",
            "100 mbit/s",
            "100 Kbit/s",
            "1 MiB/s",
        ] {
            let message = bits(text).unwrap_err();
            assert!(
                message.contains("is not a unit of a rate; the units are `bit/s`, `kbit/s`"),
                "{text}: {message}"
            );
        }
        for text in ["1 K", "1 KB", "1 k", "1 M", "1 mb", "1 kbit"] {
            assert!(bytes(text).unwrap_err().contains("is not a unit of a size"), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        for text in [
            "",
            "fast",
            "-1 Mbit/s",
            "1e3 Mbit/s",
            "1_000 Mbit/s",
            "1. Mbit/s",
            ".5 Mbit/s",
            "1.2.3 Mbit/s",
            "0100 Mbit/s",
        ] {
            assert!(bits(text).is_err(), "{text}");
        }
        assert_eq!(bits("1.0001 kbit/s").unwrap_err(), "`1.0001 kbit/s` is not a whole number of bit/s");
        assert!(bits("99999999999999999 GB/s").unwrap_err().contains("too large"));
    }

    #[test]
    fn rates_outside_what_a_shaper_takes_are_refused() {
        let plain = |text: &str| Scalar { text: text.to_owned(), quoted: false };
        assert!(rate(&plain("63 kbit/s")).is_err());
        assert!(rate(&plain("64 kbit/s")).is_ok());
        assert!(rate(&plain("400 Gbit/s")).is_ok());
        assert_eq!(
            rate(&plain("401 Gbit/s")).unwrap_err().to_string(),
            "`401 Gbit/s` is out of range: rates go from 64 kbit/s to 400 Gbit/s"
        );
    }

    #[test]
    fn a_rate_is_read_back_from_what_it_prints() {
        // Rates of every magnitude and every printed unit.
        let rates = (0..600_u64).map(|step| 64_000 + step.pow(4) * 3 + step % 7 * 1000);
        for rate in rates.filter_map(BitsPerSecond::new) {
            assert_eq!(bits(&rate.to_string()), Ok(rate.get()));
        }
    }
}
