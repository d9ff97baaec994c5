//! Port security: VMware's three switches, what else may be a source, and what a port must not do to the others.

use std::str::FromStr;

use crate::frame::mac::{MacAddr, ParseMacError};
use crate::units::FramesPerSecond;

/// The security settings of one port. The default is the strictest, without storm limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Accepted: the port receives a copy of every unicast frame of its VLANs.
    pub promiscuous: Decision,
    /// Accepted: another source address than the port's own becomes its own.
    pub mac_changes: Decision,
    /// Accepted: frames from other source addresses pass; they are not learned.
    pub forged_transmits: Decision,
    /// Sources beside the port's own that are learned, such as virtual router addresses (RFC 9568 clause 7.3).
    pub allowed: Box<[MacPattern]>,
    /// Which link-local control frames are forwarded.
    pub link_local: LinkLocal,
    /// A spanning tree frame from the port takes it down.
    pub bpdu_guard: bool,
    /// How many frames to many receivers the port may send.
    pub storm: StormLimits,
    /// Whether the operator lets the port pass frames at all.
    pub admin: Admin,
}

/// Whether something is let happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// It is not.
    #[default]
    Reject,
    /// It is.
    Accept,
}

/// What the operator wants of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// Frames pass.
    #[default]
    Up,
    /// None do.
    Down,
}

/// Frames per second that a port may send to many; `None` means any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// To everyone.
    pub broadcast: Option<FramesPerSecond>,
    /// To other groups.
    pub multicast: Option<FramesPerSecond>,
    /// To stations nobody knows.
    pub unknown_unicast: Option<FramesPerSecond>,
}

/// A set of the sixteen link-local control addresses 01:80:C2:00:00:00 to :0F.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkLocal(u16);

/// A MAC address whose last octets may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacPattern {
    address: MacAddr,
    /// Octets that must agree, 3 to 6.
    octets: usize,
}

impl Decision {
    /// Whether it is [`Self::Accept`].
    pub const fn accepts(self) -> bool {
        matches!(self, Self::Accept)
    }

    /// The word of the topology file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Accept => "accept",
        }
    }
}

impl LinkLocal {
    /// Spanning tree (IEEE 802.1Q clause 13).
    pub const STP: Self = Self(1 << 0x0);
    /// Slow protocols, LACP among them (IEEE 802.3 annex 57A).
    pub const LACP: Self = Self(1 << 0x2);
    /// Port authentication (IEEE 802.1X).
    pub const EAPOL: Self = Self(1 << 0x3);
    /// Link layer discovery, and PTP (IEEE 802.1AB).
    pub const LLDP: Self = Self(1 << 0xe);

    /// All of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether frames to `destination`, a link-local control address, are in the set. Pause frames (:01) never are.
    pub fn contains(self, destination: MacAddr) -> bool {
        let [.., last] = destination.0;
        last != 1 && self.0 >> (last & 0xf) & 1 == 1
    }
}

impl MacPattern {
    /// Whether `mac` fits.
    pub fn matches(&self, mac: MacAddr) -> bool {
        self.address.0[..self.octets] == mac.0[..self.octets]
    }

    /// An address that fits.
    pub const fn example(&self) -> MacAddr {
        self.address
    }
}

impl FromStr for MacPattern {
    type Err = ParseMacError;

    /// `00:00:5e:00:01:0a`, or `00:00:5e:00:01:xx`; at least the first three octets are given.
    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let lower = text.to_ascii_lowercase();
        let (mut rest, mut octets) = (lower.as_str(), 6);
        while let Some(shorter) = rest.strip_suffix(":xx") {
            (rest, octets) = (shorter, octets - 1);
            if octets < 3 {
                return Err(ParseMacError);
            }
        }
        Ok(Self { address: format!("{rest}{}", ":00".repeat(6 - octets)).parse()?, octets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_by_its_first_octets() {
        let pattern: MacPattern = "00:00:5E:00:01:xx".parse().unwrap();
        assert!(pattern.matches(MacAddr([0, 0, 0x5e, 0, 1, 0x0a])));
        assert!(!pattern.matches(MacAddr([0, 0, 0x5e, 0, 2, 0x0a])), "the addresses of IPv6 routers");
        let whole: MacPattern = "00:00:5e:00:01:0a".parse().unwrap();
        assert!(whole.matches(whole.example()) && !whole.matches(MacAddr([0, 0, 0x5e, 0, 1, 0x0b])));
        for bad in ["", "xx", "00:00:xx:xx:xx:xx", "00:00:5e:xx:01:0a", "00:00:5e:00:01:xx:xx"] {
            assert_eq!(bad.parse::<MacPattern>(), Err(ParseMacError), "{bad}");
        }
    }

    #[test]
    fn pause_frames_are_in_no_set() {
        let everything = LinkLocal(u16::MAX);
        let address = |last| MacAddr([1, 0x80, 0xc2, 0, 0, last]);
        assert!(everything.contains(address(0)) && !everything.contains(address(1)));
        let some = LinkLocal::LLDP.with(LinkLocal::LACP);
        assert_eq!([0, 2, 3, 0xe].map(|last| some.contains(address(last))), [false, true, false, true]);
    }
}
