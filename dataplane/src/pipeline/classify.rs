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

use crate::frame::headers::Headers;
use crate::frame::vlan::{TagControl, VlanId};
use crate::frame::{Frame, SERVICE_TPID, TPID};
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
///
/// A frame that would leave a trunk untagged, in the native VLAN, with another tag behind the one that was taken out would
/// be taken for a frame of that tag's VLAN by whoever receives it. It is refused: that is how frames hop VLANs.
pub fn put_tag_back(frame: &mut Frame, vlan: &VlanMode) -> Result<(), DropReason> {
    let VlanMode::Trunk { native, .. } = vlan else { return Ok(()) };
    if *native != Some(frame.vlan) {
        frame.push_tag(frame.tag.with_vlan(frame.vlan));
        return Ok(());
    }
    let ethertype = u16::from_be_bytes([frame.bytes()[12], frame.bytes()[13]]);
    if matches!(ethertype, TPID | SERVICE_TPID) { Err(DropReason::VlanNotAllowed) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::frame::headers::{Protocol, samples};
    use crate::id::{PortId, WorkerId};

    fn vlan(id: u16) -> VlanId {
        VlanId::try_from(id).unwrap()
    }

    fn trunk(native: Option<u16>) -> VlanMode {
        VlanMode::Trunk { allowed: [10, 20].map(vlan).into_iter().collect(), native: native.map(vlan) }
    }

    /// VLAN and class of a datagram with this tag and the DSCP of voice, or the reason it is refused for.
    fn classified(tag: Option<u16>, mode: &VlanMode, classes: &ClassTable) -> Result<(u16, u8), DropReason> {
        let mut sample = samples::v4(Protocol::Udp, vec![0; 20]);
        let untagged = sample.finished();
        sample.tags.extend(tag.map(|control| (0x8100, control)));
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let mut frame = Frame::copy_from(&sample.finished(), PortId(0), &mut pool).unwrap();
        let headers = Headers::parse(frame.bytes()).unwrap();
        classify(&mut frame, &headers, mode, classes)?;
        assert_eq!(frame.bytes(), untagged, "inside the switch no frame has its tag");
        Ok((frame.vlan.get(), frame.class.0))
    }

    #[test]
    fn the_table_of_this_module_holds() {
        let refused = None;
        let (access, native, strict) = (VlanMode::Access(vlan(7)), trunk(Some(20)), trunk(None));
        for (tag, [on_access, on_native, on_strict]) in [
            (None, [Some(7), Some(20), refused]),
            (Some(0), [Some(7), Some(20), refused]),
            (Some(0xe000), [Some(7), Some(20), refused]),
            (Some(10), [refused, Some(10), Some(10)]),
            (Some(0xf00a), [refused, Some(10), Some(10)]),
            (Some(20), [refused, refused, Some(20)]),
            (Some(7), [refused, refused, refused]),
            (Some(4095), [refused, refused, refused]),
        ] {
            for (mode, vlan) in [(&access, on_access), (&native, on_native), (&strict, on_strict)] {
                let wanted = vlan.map(|vlan| (vlan, 0)).ok_or(DropReason::VlanNotAllowed);
                assert_eq!(classified(tag, mode, &ClassTable::default()), wanted, "tag {tag:?} on {mode:?}");
            }
        }
    }

    #[test]
    fn the_higher_ranked_of_two_marks_wins() {
        let mut classes = ClassTable { default: ClassId(3), ..ClassTable::default() };
        let class_at = |pcp: u16, classes: &ClassTable| {
            classified(Some(pcp << 13 | 10), &trunk(None), classes).unwrap().1
        };
        assert_eq!(class_at(5, &classes), 3, "no rule matches");
        classes.by_dscp[46] = Some(ClassId(1));
        assert_eq!(class_at(5, &classes), 1);
        classes.by_pcp[5] = Some(ClassId(2));
        assert_eq!(class_at(5, &classes), 1);
        classes.by_pcp[5] = Some(ClassId(0));
        assert_eq!(class_at(5, &classes), 0);
        assert_eq!(class_at(4, &classes), 1, "another priority");
    }

    #[test]
    fn a_frame_leaves_with_the_egress_port_s_tag_and_its_own_priority() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let untagged = samples::v4(Protocol::Udp, vec![0; 20]).finished();
        for (mode, tag) in [
            (VlanMode::Access(vlan(10)), None),
            (trunk(Some(10)), None),
            (trunk(Some(20)), Some([0x81, 0, 0xb0, 10])),
            (trunk(None), Some([0x81, 0, 0xb0, 10])),
        ] {
            let mut frame = Frame::copy_from(&untagged, PortId(0), &mut pool).unwrap();
            (frame.vlan, frame.tag) = (vlan(10), TagControl(0xb000));
            assert_eq!(put_tag_back(&mut frame, &mode), Ok(()));
            let wanted = [&untagged[..12], tag.as_ref().map_or(&[][..], |tag| tag), &untagged[12..]].concat();
            assert_eq!(frame.bytes(), wanted, "{mode:?}");
            pool.release(frame.into_buf());
        }
    }

    #[test]
    fn a_second_tag_never_leaves_a_trunk_outermost() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let untagged = samples::v4(Protocol::Udp, vec![0; 20]).finished();
        for ethertype in [TPID, SERVICE_TPID] {
            let inner = [&untagged[..12], &ethertype.to_be_bytes(), &[0, 20], &untagged[12..]].concat();
            for (mode, wanted) in [
                (trunk(Some(10)), Err(DropReason::VlanNotAllowed)),
                (trunk(Some(20)), Ok(())),
                (VlanMode::Access(vlan(10)), Ok(())),
            ] {
                let mut frame = Frame::copy_from(&inner, PortId(0), &mut pool).unwrap();
                frame.vlan = vlan(10);
                assert_eq!(put_tag_back(&mut frame, &mode), wanted, "{mode:?}");
                pool.release(frame.into_buf());
            }
        }
    }
}
