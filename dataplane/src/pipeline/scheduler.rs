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
                        *deficit += QUANTUM * i64::from(weight);
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
