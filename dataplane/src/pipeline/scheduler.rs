//! Which class goes next: strict classes by rank, then the weighted ones by deficit round robin.
//!
//! Deficit round robin (Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", 1996): a class that
//! is visited gets a quantum of bytes in proportion to its weight and sends while its head fits; what is left it keeps
//! for the next visit, unless it ran empty.

use crate::id::ClassId;
use crate::state::MAX_CLASSES;
use crate::table::frame_list::FrameSlab;

use super::queue::QueueSet;

pub use crate::state::{ClassTable, Service};

/// Bytes a class of weight 1 may send per visit: a full frame, so that one visit always sends something ordinary.
const QUANTUM: i64 = 1518;

/// Whose turn it is on one port and direction.
#[derive(Debug, Default)]
pub struct Scheduler {
    deficit_bytes: [i64; MAX_CLASSES],
    turn: u8,
    /// Whether the class whose turn it is got this visit's quantum.
    granted: bool,
}

impl Scheduler {
    /// The class whose head goes next, or `None` if nothing waits. Asking again without [`Self::sent`] gives the same
    /// answer unless a frame of a higher strict class arrived.
    pub fn next(&mut self, queues: &QueueSet, slab: &FrameSlab, classes: &ClassTable) -> Option<ClassId> {
        if queues.frames() == 0 {
            return None;
        }
        let count = classes.classes.len();
        let head = |class| queues.front(slab, class).map(|frame| frame.wire_len().cast_signed());
        let service = |class: ClassId| classes.classes[class.index()].service;
        let waits = |class: &ClassId| service(*class) == Service::Strict && head(*class).is_some();
        if let Some(strict) = ClassId::all().take(count).find(waits) {
            return Some(strict);
        }
        // Each full turn adds a quantum to every waiting class, so the longest super-frame is reached after
        // 64 KiB / QUANTUM turns at the latest.
        loop {
            let class = ClassId(self.turn);
            let deficit = &mut self.deficit_bytes[class.index()];
            match (service(class), head(class)) {
                (Service::Weighted { weight }, Some(len)) => {
                    if !self.granted {
                        *deficit += QUANTUM * i64::from(weight.get());
                        self.granted = true;
                    }
                    if len <= *deficit {
                        return Some(class);
                    }
                }
                _ => *deficit = 0,
            }
            self.turn = if class.index() + 1 < count { class.0 + 1 } else { 0 };
            self.granted = false;
        }
    }

    /// Charges `bytes` that the class chosen by [`Self::next`] sent.
    pub fn sent(&mut self, class: ClassId, bytes: u64, classes: &ClassTable) {
        if let Service::Weighted { .. } = classes.classes[class.index()].service {
            self.deficit_bytes[class.index()] -= bytes.cast_signed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::frame::Frame;
    use crate::id::{PortId, WorkerId};
    use crate::state::Class;

    struct Port {
        classes: ClassTable,
        scheduler: Scheduler,
        queues: QueueSet,
        slab: FrameSlab,
        pool: BufferPool,
    }

    impl Port {
        fn new(services: &[Service]) -> Self {
            let classes = services.iter().map(|service| Class { service: *service }).collect();
            let size = PoolSize { small: 4096, large: 32 };
            Self {
                classes: ClassTable { classes, ..ClassTable::default() },
                scheduler: Scheduler::default(),
                queues: QueueSet::new(None),
                slab: FrameSlab::new(size.small + size.large),
                pool: BufferPool::new(WorkerId(0), size),
            }
        }

        fn push(&mut self, class: u8, length: usize, count: usize) {
            for _ in 0..count {
                let mut frame = Frame::copy_from(&vec![0; length], PortId(0), &mut self.pool).unwrap();
                frame.class = ClassId(class);
                self.queues.push(&mut self.slab, frame, usize::MAX, || 0).unwrap();
            }
        }

        fn next(&mut self) -> Option<u8> {
            self.scheduler.next(&self.queues, &self.slab, &self.classes).map(|class| class.0)
        }

        /// Sends one frame; its class and length.
        fn send(&mut self) -> Option<(u8, usize)> {
            let class = ClassId(self.next()?);
            let frame = self.queues.pop(&mut self.slab, class).unwrap();
            self.scheduler.sent(class, frame.wire_len(), &self.classes);
            Some((class.0, frame.len()))
        }

        /// Sends `bytes` bytes; the share of each of `N` classes.
        fn shares<const N: usize>(&mut self, bytes: usize) -> [usize; N] {
            let mut sent = [0; N];
            while sent.iter().sum::<usize>() < bytes {
                let (class, length) = self.send().unwrap();
                sent[usize::from(class)] += length;
            }
            sent
        }
    }

    const fn weight(weight: u8) -> Service {
        Service::Weighted { weight: NonZeroU8::new(weight).unwrap() }
    }

    #[test]
    fn strict_classes_go_by_rank_and_before_all_others() {
        let mut port = Port::new(&[weight(255), Service::Strict, Service::Strict]);
        (0..3).for_each(|class| port.push(class, 60, 2));
        let order: Vec<_> = std::iter::from_fn(|| port.send()).map(|(class, _)| class).collect();
        assert_eq!(order, [1, 1, 2, 2, 0, 0]);
    }

    #[test]
    fn weighted_classes_share_bytes_whatever_the_size_of_their_frames() {
        let mut port = Port::new(&[weight(4), weight(2), weight(1)]);
        port.push(0, 100, 2000);
        port.push(1, 1514, 200);
        port.push(2, 590, 200);
        let unit = 1518 * 20;
        let shares = port.shares::<3>(7 * unit);
        for (share, weight) in shares.into_iter().zip([4, 2, 1]) {
            assert!(share.abs_diff(weight * unit) <= 2 * 1518, "{shares:?}");
        }
    }

    #[test]
    fn a_class_that_was_empty_did_not_save_its_turns() {
        let mut port = Port::new(&[weight(1), weight(1)]);
        port.push(0, 1000, 400);
        port.shares::<2>(200_000);
        port.push(1, 1000, 100);
        let [old, new] = port.shares::<2>(40_000);
        assert!(old.abs_diff(new) <= 2 * 1518, "{old} and {new} bytes");
    }

    #[test]
    fn a_super_frame_longer_than_the_quantum_waits_for_its_share() {
        let mut port = Port::new(&[weight(1), weight(1)]);
        port.push(0, 65_000, 8);
        port.push(1, 1000, 600);
        let [long, short] = port.shares::<2>(600_000);
        assert!(long.abs_diff(short) <= 66_000, "{long} and {short} bytes");
    }

    #[test]
    fn who_has_to_wait_for_credit_keeps_its_turn() {
        let mut port = Port::new(&[Service::Strict, weight(1), weight(1)]);
        port.push(1, 1000, 3);
        port.push(2, 1000, 3);
        port.send();
        let turn = port.next();
        assert_eq!([port.next(), port.next()], [turn, turn]);
        port.push(0, 60, 1);
        assert_eq!(port.next(), Some(0), "unless somebody of higher rank comes");
    }
}
