//! An interface whose frames an XDP program sends to AF_XDP sockets, one on each of its receive queues.
//!
//! Frames arrive without any offload information. One that a local stack sent over a veth has an unfinished checksum
//! and no flag saying so; it is recognised by its checksum field (see [`checksum::detect_partial`]). On the way out
//! nothing can be left to the device, so checksums are finished and super-frames segmented here.

pub mod program;
pub mod queue;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use crate::buffer::{BufferPool, FrameBuf, HEADROOM, LARGE};
use crate::frame::offload::{Checksum, OffloadSupport};
use crate::frame::segment::{self, Segments};
use crate::frame::{Frame, checksum};
use crate::id::PortId;
use crate::time::{Instant, Nanos};
use crate::verdict::DropReason;

use super::promiscuous::Promiscuous;
use super::{BATCH, Capabilities, Device, DeviceStats, Settled, XskStats, longest_frame};
use program::{SteerError, SteerProgram, SteeringMode};
use queue::{CHUNK_DATA, Left, OpenQueueError, QueueChunks, XskQueue};

/// A closed socket keeps its queue for some 20 ms; one that is still busy after this long belongs to someone else.
const BUSY_RETRIES: u32 = 100;
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// A transmit ring that the kernel does not take from is looked at again after this long: an interface may stay down.
const STUCK_RETRY: Nanos = Nanos::from_millis(1);

/// The sockets and the program of one interface.
#[derive(Debug)]
pub struct AfXdpDevice {
    port: PortId,
    mtu: u32,
    // Before `queues`: frames must stop arriving before the sockets go.
    program: SteerProgram,
    queues: Vec<Queue>,
    _promiscuous: Promiscuous,
    /// The queue asked first next time.
    turn: usize,
    /// Segments of the front super-frame that are written already.
    segments_written: u16,
    scratch: Box<[u8]>,
    stats: DeviceStats,
}

#[derive(Debug)]
struct Queue {
    socket: XskQueue,
    /// A frame whose first descriptors were read and whose last were not yet.
    partial: Partial,
}

#[derive(Debug)]
enum Partial {
    /// The next descriptor starts a frame.
    None,
    /// So many bytes of a frame are in this buffer.
    Gathering(FrameBuf, usize),
    /// The rest of a frame that found no buffer.
    Skipping,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The port that frames are stamped with.
    pub port: PortId,
    /// Name of the interface, in the calling thread's network namespace.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// Its MTU.
    pub mtu: u32,
    /// Its receive queues; each gets a socket.
    pub queues: u32,
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// The program.
    #[error("interface {interface}")]
    Steer {
        /// The interface.
        interface: String,
        /// What failed.
        #[source]
        source: SteerError,
    },
    /// A socket.
    #[error("interface {interface}, queue {queue}")]
    Queue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What failed.
        #[source]
        source: OpenQueueError,
    },
    /// Frames for others than the interface itself.
    #[error("interface {interface} cannot be made promiscuous")]
    Promiscuous {
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// A queue that stays busy.
    #[error(
        "queue {queue} of interface {interface} is in use by another AF_XDP socket: end the process that holds it"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
}

impl AfXdpDevice {
    /// Opens a socket on every queue, then lets the program steer frames into them.
    ///
    /// Waits up to two seconds for queues that a former process is just giving up.
    pub fn open(config: &AfXdpConfig) -> Result<Self, AfXdpError> {
        let mut queues = Vec::new();
        for queue in 0..config.queues {
            let socket = open_queue(config, queue)?;
            queues.push(Queue { socket, partial: Partial::None });
        }
        let longest_bytes = queues.first().map_or(usize::MAX, |queue: &Queue| queue.socket.longest_frame());
        if longest_bytes != usize::MAX {
            tracing::warn!(
                interface = config.interface,
                mtu_bytes = config.mtu,
                longest_bytes,
                "this kernel has no AF_XDP multi-buffer (Linux 6.6 has): longer frames are dropped by it, and counted"
            );
        }
        let promiscuous = Promiscuous::hold(config.ifindex)
            .map_err(|source| AfXdpError::Promiscuous { interface: config.interface.clone(), source })?;
        let steer = |source| AfXdpError::Steer { interface: config.interface.clone(), source };
        let mut program = SteerProgram::attach(config.ifindex).map_err(steer)?;
        for (id, queue) in (0..).zip(&queues) {
            program.connect(id, queue.socket.fd().as_raw_fd()).map_err(steer)?;
        }
        Ok(Self {
            port: config.port,
            mtu: config.mtu,
            program,
            queues,
            _promiscuous: promiscuous,
            turn: 0,
            segments_written: 0,
            scratch: vec![0; LARGE].into(),
            stats: DeviceStats::default(),
        })
    }

    /// Where the program runs.
    pub fn mode(&self) -> SteeringMode {
        self.program.mode()
    }

    /// Writes the frame, or as much of a super-frame as there is room for.
    fn write(&mut self, frame: &mut Frame) -> Write {
        let socket = &mut self.queues[0].socket;
        match frame.gso {
            None => write_plain(socket, frame, self.mtu, &mut self.stats),
            Some(gso) => {
                let longest = longest_frame(self.mtu).min(socket.longest_frame());
                if usize::from(gso.header_len) + usize::from(gso.segment_size) > longest {
                    return Write::Settled(Err(DropReason::MtuExceeded));
                }
                let Some(segments) = Segments::new(frame) else {
                    return Write::Settled(Err(DropReason::UnsupportedOffload));
                };
                while self.segments_written < gso.segments {
                    let index = self.segments_written;
                    let len = segments.segment_len(index);
                    if socket.room() < XskQueue::chunks_for(len) {
                        return Write::Full;
                    }
                    if len <= CHUNK_DATA {
                        socket.write_with(len, |chunk| _ = segments.write(index, chunk));
                    } else {
                        segments.write(index, &mut self.scratch);
                        socket.write(&self.scratch[..len]);
                    }
                    self.segments_written += 1;
                }
                self.segments_written = 0;
                self.stats.super_frames_segmented += 1;
                Write::Settled(Ok(()))
            }
        }
    }
}

/// What became of a frame at [`AfXdpDevice::write`].
enum Write {
    Settled(Result<(), DropReason>),
    Full,
}

impl Device for AfXdpDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: self.mtu, offload: OffloadSupport { checksum: false, gso: false } }
    }

    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>) {
        for step in 0..self.queues.len() {
            let at = (self.turn + step) % self.queues.len();
            let Queue { socket, partial } = &mut self.queues[at];
            // Never take a descriptor whose bytes have no place to go: it waits in the ring, where it is counted.
            let most = (BATCH - frames.len()).min(pool.free_small());
            let (port, mtu, stats) = (self.port, self.mtu, &mut self.stats);
            socket.receive(most, |bytes, continues| match gather(partial, bytes, continues, pool) {
                Gathered::Frame(buf, len) => {
                    let mut frame = Frame::new(buf, len, port);
                    frame.checksum = checksum::detect_partial(frame.bytes());
                    // Only a sender that leaves both to its device makes these, and a driver without XDP lets them by.
                    if len > longest_frame(mtu) && frame.checksum != Checksum::None {
                        frame.gso = segment::detect(frame.bytes(), mtu);
                    }
                    frames.push(frame);
                }
                Gathered::More => {}
                Gathered::Lost => stats.rx_no_buffer += 1,
            });
        }
        self.turn = (self.turn + 1) % self.queues.len();
    }

    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>) {
        self.queues[0].socket.reclaim();
        while let Some(mut frame) = frames.pop_front() {
            match self.write(&mut frame) {
                Write::Settled(fate) => settled.push(Settled { frame, fate }),
                Write::Full => {
                    frames.push_front(frame);
                    self.stats.tx_busy += 1;
                    break;
                }
            }
        }
        self.queues[0].socket.submit();
    }

    fn release_buffers(&mut self, pool: &mut BufferPool) {
        for queue in &mut self.queues {
            if let Partial::Gathering(buf, _) = std::mem::replace(&mut queue.partial, Partial::None) {
                pool.release(buf);
            }
        }
    }

    fn flush(&mut self, now: Instant) -> Option<Instant> {
        let (calls, left) = self.queues[0].socket.kick();
        self.stats.syscalls += calls;
        match left {
            Left::Nothing => None,
            Left::Moving => Some(now),
            Left::Stuck => Some(now + STUCK_RETRY),
        }
    }

    fn stats(&mut self) -> DeviceStats {
        self.stats.xsk.resize_with(self.queues.len(), XskStats::default);
        for (queue, last) in self.queues.iter().zip(&mut self.stats.xsk) {
            // When the kernel does not answer, the last answer still holds as a lower bound.
            *last = queue.socket.stats().unwrap_or(*last);
        }
        self.stats.steering = self.program.counters();
        self.stats.clone()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.fd()).collect()
    }
}

fn open_queue(config: &AfXdpConfig, queue: u32) -> Result<XskQueue, AfXdpError> {
    for _ in 0..BUSY_RETRIES {
        match XskQueue::open(&config.interface, queue, CHUNKS) {
            Err(error) if error.is_busy() => thread::sleep(BUSY_WAIT),
            Err(source) => {
                return Err(AfXdpError::Queue { interface: config.interface.clone(), queue, source });
            }
            Ok(socket) => return Ok(socket),
        }
    }
    Err(AfXdpError::QueueBusy { interface: config.interface.clone(), queue })
}

/// Enough to receive what a TCP sender has in flight while the worker is away for a scheduling period.
const CHUNKS: QueueChunks = QueueChunks { rx: 1024, tx: 256 };

fn write_plain(socket: &mut XskQueue, frame: &mut Frame, mtu: u32, stats: &mut DeviceStats) -> Write {
    let len = frame.len();
    if len > longest_frame(mtu).min(socket.longest_frame()) {
        return Write::Settled(Err(DropReason::MtuExceeded));
    }
    if socket.room() < XskQueue::chunks_for(len) {
        return Write::Full;
    }
    if let Checksum::Partial { start, offset } = frame.checksum {
        if checksum::complete(frame.bytes_mut(), start, offset).is_err() {
            return Write::Settled(Err(DropReason::Malformed));
        }
        frame.checksum = Checksum::None;
        stats.checksums_completed += 1;
    }
    socket.write(frame.bytes());
    Write::Settled(Ok(()))
}

/// What a descriptor amounted to.
enum Gathered {
    Frame(FrameBuf, usize),
    More,
    Lost,
}

/// Adds one descriptor's bytes to the frame it belongs to.
fn gather(partial: &mut Partial, bytes: &[u8], continues: bool, pool: &mut BufferPool) -> Gathered {
    let (mut buf, have) = match std::mem::replace(partial, Partial::None) {
        Partial::Skipping => {
            if continues {
                *partial = Partial::Skipping;
            }
            return Gathered::More;
        }
        Partial::Gathering(buf, have) => (buf, have),
        // How long the frame will be is not known yet, only that it is longer than a chunk.
        Partial::None => match pool.take(if continues { LARGE - HEADROOM } else { bytes.len() }) {
            Some(buf) => (buf, 0),
            None => {
                if continues {
                    *partial = Partial::Skipping;
                }
                return Gathered::Lost;
            }
        },
    };
    let end = have + bytes.len();
    let Some(room) = buf.bytes_mut().get_mut(HEADROOM + have..HEADROOM + end) else {
        pool.release(buf);
        if continues {
            *partial = Partial::Skipping;
        }
        return Gathered::Lost;
    };
    room.copy_from_slice(bytes);
    if continues {
        *partial = Partial::Gathering(buf, end);
        return Gathered::More;
    }
    Gathered::Frame(buf, end)
}
