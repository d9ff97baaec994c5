//! Which VLAN and which traffic class a received frame belongs to (IEEE 802.1Q-2018 clauses 6.9 and 8.6.6).
//!
//! | frame            | access port          | trunk with native      | trunk without native |
//! |------------------|----------------------|------------------------|----------------------|
//! | no tag           | the port's VLAN      | the native VLAN        | refused              |
//! | tag with VLAN 0  | the port's VLAN      | the native VLAN        | refused              |
//! | tag with VLAN v  | refused              | v if allowed, else refused | v if allowed, else refused |
//!
//! A trunk refuses its native VLAN when it comes tagged: accepting both forms is how frames hop VLANs. Only the
//! ethertype 0x8100 is a tag here; a service tag (0x88a8) is payload. One tag is taken out and the rest of the frame is
//! left as it is, so a second tag behind it stays payload too.

use crate::frame::Frame;
use crate::frame::headers::Headers;
use crate::frame::vlan::{TagControl, VlanId};
use crate::id::ClassId;
use crate::state::{ClassTable, VlanMode};
use crate::verdict::DropReason;

/// Puts the frame into its VLAN and class and takes its tag out of the bytes.
pub fn classify(
    frame: &mut Frame,
    headers: &Headers,
    vlan: &VlanMode,
    classes: &ClassTable,
) -> Result<(), DropReason> {
    frame.vlan = admitted_vlan(headers.tag, vlan).ok_or(DropReason::VlanNotAllowed)?;
    frame.class = class_of(headers, classes);
    frame.tag = match headers.tag {
        Some(_) => frame.pop_tag(),
        None => TagControl::default(),
    };
    Ok(())
}

/// The way back: puts the tag the egress port's VLAN travels with into the bytes. The priority it came with is kept.
pub fn put_tag_back(frame: &mut Frame, vlan: &VlanMode) {
    if let VlanMode::Trunk { native, .. } = vlan
        && *native != Some(frame.vlan)
    {
        frame.push_tag(frame.tag.with_vlan(frame.vlan));
    }
}

fn admitted_vlan(tag: Option<TagControl>, mode: &VlanMode) -> Option<VlanId> {
    let tagged = tag.map(TagControl::vid).filter(|vid| *vid != 0);
    match (mode, tagged) {
        (VlanMode::Access(own), None) => Some(*own),
        (VlanMode::Access(_), Some(_)) => None,
        (VlanMode::Trunk { native, .. }, None) => *native,
        (VlanMode::Trunk { allowed, native }, Some(vid)) => {
            let vlan = VlanId::try_from(vid).ok()?;
            (allowed.contains(vlan) && *native != Some(vlan)).then_some(vlan)
        }
    }
}

/// When the tag and the IP header ask for different classes, the higher-ranked one wins.
fn class_of(headers: &Headers, classes: &ClassTable) -> ClassId {
    let by_pcp = headers.tag.and_then(|tag| classes.by_pcp[usize::from(tag.pcp())]);
    let by_dscp = headers.dscp.and_then(|dscp| classes.by_dscp[usize::from(dscp & 63)]);
    match (by_pcp, by_dscp) {
        (Some(a), Some(b)) => a.min(b),
        (found, None) | (None, found) => found.unwrap_or(classes.default),
    }
}
