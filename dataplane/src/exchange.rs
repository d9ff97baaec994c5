//! What workers send each other: frames for ports the other owns, buffers on their way home, learned addresses.
//!
//! Each ordered pair of workers has a bounded single-producer single-consumer ring for frames and one for buffers. A
//! full frame ring refuses the frame, which the sender counts; a buffer ring has room for every buffer there is, so it
//! is never full. Addresses travel in a bounded channel per receiver: a learned one that finds it half full is not sent,
//! and is repeated when the table entry is next announced.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::buffer::{FrameBuf, PoolSize};
use crate::counters::WorkerCounters;
use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::frame::vlan::VlanId;
use crate::id::{PortId, WorkerId};

/// Frames that wait between two workers at most.
const FRAME_RING: usize = 1024;
/// Table events that wait for one worker at most.
const EVENT_CHANNEL: usize = 4096;
/// Learned addresses use only so much of the channel, so that a flood of them never crowds out an event that is not
/// repeated: one of the others is rare, a few for each port and VLAN.
const LEARNED_EVENTS: usize = EVENT_CHANNEL / 2;

/// News about the MAC table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdbEvent {
    /// A source was learned.
    Learned {
        /// Its VLAN.
        vlan: VlanId,
        /// Its address.
        mac: MacAddr,
        /// Its port.
        port: PortId,
    },
    /// A source was pinned.
    Pinned {
        /// Its VLAN.
        vlan: VlanId,
        /// Its address.
        mac: MacAddr,
        /// Its port.
        port: PortId,
    },
    /// A pinned source is the port's no more.
    Unpinned {
        /// Its address.
        mac: MacAddr,
        /// Its port.
        port: PortId,
    },
    /// The port's addresses are to be forgotten, pinned first-seen ones included.
    Flush {
        /// The port.
        port: PortId,
    },
}

/// One worker's ends of all rings and channels.
#[derive(Debug)]
pub struct Exchange {
    /// By [`WorkerId`]; `None` for the worker itself.
    peers: Vec<Option<Peer>>,
    events: Receiver<FdbEvent>,
    /// Where the next search for a frame starts, so that no peer starves.
    turn: usize,
}

#[derive(Debug)]
struct Peer {
    frames_out: Producer<(PortId, Frame)>,
    frames_in: Consumer<(PortId, Frame)>,
    buffers_out: Producer<FrameBuf>,
    buffers_in: Consumer<FrameBuf>,
    events: Sender<FdbEvent>,
    /// The peer's counters, for how many buffers its pool has left.
    counters: Option<Arc<WorkerCounters>>,
    /// Something was sent since [`Exchange::take_notified`].
    notify: bool,
}

impl Exchange {
    /// Connects `pools.len()` workers with pools of these sizes.
    pub fn connect(pools: &[PoolSize]) -> Vec<Self> {
        let count = pools.len();
        let channels: Vec<_> = (0..count).map(|_| bounded(EVENT_CHANNEL)).collect();
        let mut frames = grid(count, |_, _| RingBuffer::new(FRAME_RING));
        // Buffers of the pool at home travel back to it: all of them may be on their way at once.
        let mut buffers = grid(count, |_, home| RingBuffer::new(pools[home].small + pools[home].large));
        (0..count)
            .map(|me| {
                let peer = |other: usize| {
                    (other != me).then(|| {
                        Some(Peer {
                            frames_out: frames[me][other].0.take()?,
                            frames_in: frames[other][me].1.take()?,
                            buffers_out: buffers[me][other].0.take()?,
                            buffers_in: buffers[other][me].1.take()?,
                            events: channels[other].0.clone(),
                            counters: None,
                            notify: false,
                        })
                    })?
                };
                Self { peers: (0..count).map(peer).collect(), events: channels[me].1.clone(), turn: 0 }
            })
            .collect()
    }

    /// Tells how full the other workers' pools are, by their counters.
    pub fn watch(&mut self, counters: &[Arc<WorkerCounters>]) {
        for (peer, counters) in self.peers.iter_mut().zip(counters) {
            if let Some(peer) = peer {
                peer.counters = Some(counters.clone());
            }
        }
    }

    /// Sends a frame to the worker that owns `egress`, or gives it back if the ring is full.
    pub fn hand_over(&mut self, owner: WorkerId, egress: PortId, frame: Frame) -> Result<(), Frame> {
        let Some(Some(peer)) = self.peers.get_mut(owner.index()) else { return Err(frame) };
        peer.notify = true;
        peer.frames_out.push((egress, frame)).map_err(|rtrb::PushError::Full((_, frame))| frame)
    }

    /// A frame that another worker handed over.
    pub fn frame(&mut self) -> Option<(PortId, Frame)> {
        let count = self.peers.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            if let Some(peer) = &mut self.peers[at]
                && let Ok(item) = peer.frames_in.pop()
            {
                self.turn = at + 1;
                return Some(item);
            }
        }
        None
    }

    /// Sends a buffer home.
    pub fn give_back(&mut self, buf: FrameBuf) {
        if let Some(Some(peer)) = self.peers.get_mut(buf.home().index()) {
            let pushed = peer.buffers_out.push(buf);
            debug_assert!(pushed.is_ok(), "the ring has room for every buffer of the pool");
        }
    }

    /// A buffer that came home.
    pub fn returned(&mut self) -> Option<FrameBuf> {
        self.peers.iter_mut().flatten().find_map(|peer| peer.buffers_in.pop().ok())
    }

    /// Sends an event to every other worker; how many did not get it.
    pub fn tell_all(&mut self, event: FdbEvent) -> u64 {
        let room = if matches!(event, FdbEvent::Learned { .. }) { LEARNED_EVENTS } else { EVENT_CHANNEL };
        let tell = |peer: &mut Peer| {
            peer.notify = true;
            peer.events.len() >= room || peer.events.try_send(event).is_err()
        };
        self.peers.iter_mut().flatten().map(|peer| u64::from(tell(peer))).sum()
    }

    /// An event from another worker.
    pub fn event(&mut self) -> Option<FdbEvent> {
        self.events.try_recv().ok()
    }

    /// Free buffers in the pool of `home`, as of its last round.
    pub fn free_buffers(&self, home: WorkerId, small: bool) -> usize {
        let flow =
            self.peers.get(home.index()).and_then(Option::as_ref).and_then(|peer| peer.counters.as_ref());
        flow.map_or(0, |counters| {
            let gauge = if small { &counters.flow.free_small } else { &counters.flow.free_large };
            usize::try_from(gauge.value()).unwrap_or(0)
        })
    }

    /// The workers that were sent frames since the last call and may be asleep.
    pub fn take_notified(&mut self) -> impl Iterator<Item = WorkerId> + '_ {
        self.peers.iter_mut().enumerate().filter_map(|(at, peer)| {
            let notified = std::mem::take(&mut peer.as_mut()?.notify);
            notified.then(|| u8::try_from(at).ok().map(WorkerId)).flatten()
        })
    }

    /// Whether another worker's frames wait here.
    pub fn has_frames(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.frames_in.is_empty())
    }
}

/// The two ends of the ring from each worker (row) to each other (column), to be taken out one by one.
type Grid<T> = Vec<Vec<(Option<Producer<T>>, Option<Consumer<T>>)>>;

fn grid<T>(count: usize, ring: impl Fn(usize, usize) -> (Producer<T>, Consumer<T>)) -> Grid<T> {
    let cell = |from, to| match (from != to).then(|| ring(from, to)) {
        Some((producer, consumer)) => (Some(producer), Some(consumer)),
        None => (None, None),
    };
    (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPool;

    const POOL: PoolSize = PoolSize { small: FRAME_RING + 8, large: 0 };
    const PORT: PortId = PortId(7);

    fn workers<const N: usize>() -> ([Exchange; N], [BufferPool; N]) {
        let exchanges = Exchange::connect(&[POOL; N]).try_into().unwrap();
        let mut home = 0..;
        (exchanges, std::array::from_fn(|_| BufferPool::new(WorkerId(home.next().unwrap()), POOL)))
    }

    fn frame(mark: u8, pool: &mut BufferPool) -> Frame {
        Frame::copy_from(&[mark; 60], PORT, pool).unwrap()
    }

    fn marks(exchange: &mut Exchange) -> Vec<u8> {
        std::iter::from_fn(|| exchange.frame())
            .map(|(port, frame)| (port == PORT).then(|| frame.bytes()[0]).unwrap())
            .collect()
    }

    #[test]
    fn frames_arrive_in_order_and_only_at_their_worker() {
        let ([mut a, mut b, mut c], [mut pool, ..]) = workers::<3>();
        for mark in 0..3 {
            a.hand_over(WorkerId(1), PORT, frame(mark, &mut pool)).unwrap();
        }
        assert_eq!(a.take_notified().collect::<Vec<_>>(), [WorkerId(1)]);
        assert_eq!(a.take_notified().count(), 0, "once is enough");
        assert!(b.has_frames() && !c.has_frames());
        assert_eq!(marks(&mut b), [0, 1, 2]);
        assert_eq!(marks(&mut c), []);
    }

    #[test]
    fn a_full_ring_gives_the_frame_back() {
        let ([mut a, mut b], [mut pool, _]) = workers::<2>();
        for _ in 0..FRAME_RING {
            a.hand_over(WorkerId(1), PORT, frame(1, &mut pool)).unwrap();
        }
        let refused = a.hand_over(WorkerId(1), PORT, frame(2, &mut pool)).unwrap_err();
        assert_eq!(refused.bytes()[0], 2);
        assert_eq!(marks(&mut b).len(), FRAME_RING);
    }

    #[test]
    fn no_worker_is_starved_by_another_that_sends_more() {
        let ([mut a, mut b, mut c], [mut pool_a, mut pool_b, _]) = workers::<3>();
        for _ in 0..4 {
            a.hand_over(WorkerId(2), PORT, frame(1, &mut pool_a)).unwrap();
        }
        b.hand_over(WorkerId(2), PORT, frame(2, &mut pool_b)).unwrap();
        assert_eq!(marks(&mut c), [1, 2, 1, 1, 1]);
    }

    #[test]
    fn every_buffer_of_a_pool_finds_its_way_home() {
        let ([mut a, mut b], [mut pool, _]) = workers::<2>();
        while let Some(buf) = pool.take(60) {
            b.give_back(buf);
        }
        assert_eq!(pool.outstanding(), POOL.small);
        while let Some(buf) = a.returned() {
            pool.release(buf);
        }
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn an_event_reaches_every_other_worker_or_is_counted_as_lost() {
        let ([mut a, mut b, mut c], _) = workers::<3>();
        let event = FdbEvent::Flush { port: PORT };
        assert_eq!(a.tell_all(event), 0);
        assert_eq!([a.event(), b.event(), b.event(), c.event()], [None, Some(event), None, Some(event)]);
        let lost: u64 = (0..=EVENT_CHANNEL).map(|_| a.tell_all(event)).sum();
        assert_eq!(lost, 2, "one event too many for two channels");
    }

    #[test]
    fn free_buffers_abroad_are_what_their_worker_published() {
        let ([mut a, _b], _) = workers::<2>();
        assert_eq!(a.free_buffers(WorkerId(1), true), 0, "unknown");
        let counters = [0, 1].map(|_| WorkerCounters::new(0));
        a.watch(&counters);
        counters[1].flow.free_small.set(12);
        counters[1].flow.free_large.set(3);
        assert_eq!([true, false].map(|small| a.free_buffers(WorkerId(1), small)), [12, 3]);
    }
}
