//! MAC addresses (IEEE 802-2014 clause 8.2).

use std::fmt;
use std::str::FromStr;

/// A 48-bit MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

/// The text is not a MAC address of the form `52:54:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: write six pairs of hexadecimal digits, as in \"52:54:00:12:34:56\"")]
pub struct ParseMacError;

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// A group address: the least significant bit of the first octet is set.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The broadcast address.
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// An address that a station can have: not a group address, not all zero.
    pub fn is_station(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }

    /// 01:80:C2:00:00:00 to :0F, which a bridge does not forward (IEEE 802.1Q-2018 table 8-1).
    pub fn is_link_local_control(self) -> bool {
        self.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && self.0[5] < 0x10
    }

    /// Spanning tree: the bridge group (IEEE 802.1Q clause 8.13.5), or Cisco's for one tree per VLAN.
    pub fn is_spanning_tree(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0] | [0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd])
    }

    /// The address as the low 48 bits of an integer.
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints_and_nothing_looser() {
        let mac: MacAddr = "52:54:00:AB:cd:0f".parse().unwrap();
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:0f");
        for bad in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "5254.0012.3456",
            "0:1:2:3:4:5",
            "52:54:00:12:34:+6",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError), "{bad}");
        }
    }

    #[test]
    fn knows_the_addresses_with_a_meaning() {
        let mac = |text: &str| text.parse::<MacAddr>().unwrap();
        assert!(mac("01:80:c2:00:00:0e").is_link_local_control());
        assert!(!mac("01:80:c2:00:00:10").is_link_local_control());
        assert!(mac("33:33:00:00:00:01").is_group());
        assert!(!mac("00:00:00:00:00:00").is_station());
        assert!(mac("02:00:00:00:00:01").is_station());
        assert_eq!(mac("00:00:00:00:01:02").to_u64(), 0x102);
    }
}
