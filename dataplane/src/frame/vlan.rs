//! VLAN identifiers, tags and the set of VLANs a port may carry (IEEE 802.1Q-2018 clause 9.6).

use std::fmt;

/// A VLAN that frames can belong to: 1 to 4094. 0 means "priority only", 4095 is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(u16);

/// The number is not a VLAN identifier from 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VLAN {0} does not exist: VLAN identifiers go from 1 to 4094")]
pub struct InvalidVlanId(pub u64);

impl VlanId {
    /// Where frames of ports without any VLAN setting live.
    pub const UNTAGGED: Self = Self(1);
    /// The highest VLAN.
    pub const MAX: u16 = 4094;

    /// The number of this VLAN.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for VlanId {
    type Error = InvalidVlanId;

    fn try_from(id: u16) -> Result<Self, InvalidVlanId> {
        if (1..=Self::MAX).contains(&id) { Ok(Self(id)) } else { Err(InvalidVlanId(id.into())) }
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The 16 bits that follow the 0x8100 of a tag: priority (PCP), drop eligible (DEI), VLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagControl(pub u16);

impl TagControl {
    /// Priority code point, 0 to 7.
    pub const fn pcp(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// VLAN field; 0 means the tag carries a priority only.
    pub const fn vid(self) -> u16 {
        self.0 & 0x0fff
    }

    /// The same priority and drop eligibility in another VLAN.
    pub const fn with_vlan(self, vlan: VlanId) -> Self {
        Self(self.0 & 0xf000 | vlan.0)
    }
}

/// A set of VLANs: one bit each.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// The empty set.
    pub fn new() -> Self {
        Self(Box::new([0; 64]))
    }

    /// Adds `vlan`.
    pub fn insert(&mut self, vlan: VlanId) {
        self.0[usize::from(vlan.0 / 64)] |= 1 << (vlan.0 % 64);
    }

    /// Whether `vlan` is in the set.
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.0[usize::from(vlan.0 / 64)] >> (vlan.0 % 64) & 1 == 1
    }

    /// The VLANs of the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=VlanId::MAX).map(VlanId).filter(|vlan| self.contains(*vlan))
    }
}

impl Default for VlanSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<I: IntoIterator<Item = VlanId>>(vlans: I) -> Self {
        let mut set = Self::new();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

/// Prints ranges: `10, 20-29`.
impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut vlans = self.iter().map(VlanId::get).peekable();
        let mut separator = "";
        while let Some(first) = vlans.next() {
            let mut last = first;
            while vlans.peek() == Some(&(last + 1)) {
                last += 1;
                vlans.next();
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_1_to_4094_are_vlans() {
        for id in [0, 4095, 4096, u16::MAX] {
            assert_eq!(VlanId::try_from(id), Err(InvalidVlanId(id.into())));
        }
        assert_eq!(VlanId::try_from(4094).unwrap().get(), 4094);
    }

    #[test]
    fn a_set_holds_what_was_put_in_and_prints_ranges() {
        let set: VlanSet =
            [1, 20, 21, 22, 63, 64, 4094].map(|id| VlanId::try_from(id).unwrap()).into_iter().collect();
        assert_eq!(format!("{set:?}"), "1, 20-22, 63-64, 4094");
        assert_eq!(set.iter().count(), 7);
        assert!(!set.contains(VlanId::try_from(2).unwrap()));
    }

    #[test]
    fn a_tag_keeps_its_priority_when_it_changes_vlan() {
        let tag = TagControl(5 << 13 | 1 << 12 | 100).with_vlan(VlanId::try_from(7).unwrap());
        assert_eq!((tag.pcp(), tag.vid(), tag.0 >> 12 & 1), (5, 7, 1));
    }
}
