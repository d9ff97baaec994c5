//! One AF_XDP socket on one queue of an interface, with a UMEM of its own.
//!
//! ```text
//!             fill ─────────────→                ←───────────── tx
//!   user  rx chunks              kernel  tx chunks              user
//!             rx   ←─────────────                ─────────────→ completion
//! ```
//!
//! The UMEM is divided once: its first half belongs to the receive side and circulates between fill and rx, the second
//! half to the transmit side and circulates between tx and completion. A chunk is either in a ring or in `free`, and
//! both rings of a side hold all its chunks, so neither can overflow. Frames are copied out of their chunk at once and
//! the chunk goes back to the fill ring, so however long a frame waits in the switch, the socket can receive.
//!
//! Kernel side: `Documentation/networking/af_xdp.rst`.

#![expect(unsafe_code, reason = "descriptors name memory that kernel and user share")]

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::resource::{Resource, getrlimit};
use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::socket::{RxQueue, Socket, TxQueue};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::umem::{CompQueue, FillQueue, Umem};

use crate::port::{BATCH, XskStats};

/// Bytes of a chunk; of these the kernel keeps 256 in front of a received frame.
const CHUNK: u32 = 2048;
/// Bytes of frame in a chunk. A longer frame takes several.
pub const CHUNK_DATA: usize = 2048 - 256;
/// `XDP_PKT_CONTD` of `linux/if_xdp.h`: the frame goes on in the next descriptor.
const CONTINUES: u32 = 1;
/// Transmit calls per flush: in copy mode one call moves at most 32 frames (`TX_BATCH_SIZE`).
const KICKS: u64 = 4;

/// Chunks of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueChunks {
    /// Chunks for receiving, a power of two.
    pub rx: u32,
    /// Chunks for sending, a power of two.
    pub tx: u32,
}

/// What [`XskQueue::kick`] left in the transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Frames that the kernel would take at the next call.
    Moving,
    /// Frames that the kernel does not take now: the interface is down, or its completions have not come back.
    Stuck,
}

/// One socket, its rings and its UMEM.
#[derive(Debug)]
pub struct XskQueue {
    umem: Umem,
    rx: RxQueue,
    fill: FillQueue,
    tx: TxQueue,
    completion: CompQueue,
    /// Transmit chunks that are in neither ring.
    free: Vec<FrameDesc>,
    /// Descriptors written since the last [`Self::submit`].
    written: Vec<FrameDesc>,
    scratch: [FrameDesc; BATCH],
    tx_ring: u32,
    /// The kernel takes frames that go on in the next chunk.
    multi_buffer: bool,
}

/// Why a socket could not be opened; the caller adds interface and queue.
#[derive(Debug, thiserror::Error)]
pub enum OpenQueueError {
    /// The UMEM could not be made.
    #[error("cannot register {kib} KiB of packet memory")]
    Umem {
        /// Its size.
        kib: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The process may not lock as much memory.
    #[error(
        "cannot register {kib} KiB of packet memory: the process may lock {limit_kib} KiB (RLIMIT_MEMLOCK); raise the \
         limit to as much for each queue, or give it CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// Size of the UMEM.
        kib: u32,
        /// The limit.
        limit_kib: u64,
    },
    /// The socket could not be bound.
    #[error("cannot bind an AF_XDP socket")]
    Bind(#[source] io::Error),
}

impl OpenQueueError {
    /// The queue belongs to another socket, or to one that is just being closed.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Bind(error) if error.raw_os_error() == Some(libc::EBUSY))
    }
}

impl XskQueue {
    /// Opens a socket on `queue` of `interface` and fills its fill ring.
    pub fn open(interface: &str, queue: u32, chunks: QueueChunks) -> Result<Self, OpenQueueError> {
        // Multi-buffer needs Linux 6.6; without it frames longer than a chunk are dropped by the kernel, and counted.
        Self::bind(interface, queue, chunks, BindFlags::XDP_USE_SG).or_else(|error| match error {
            OpenQueueError::Bind(cause) if cause.raw_os_error() == Some(libc::EINVAL) => {
                Self::bind(interface, queue, chunks, BindFlags::empty())
            }
            error => Err(error),
        })
    }

    fn bind(interface: &str, queue: u32, chunks: QueueChunks, sg: BindFlags) -> Result<Self, OpenQueueError> {
        let invalid = |what| OpenQueueError::Bind(io::Error::new(io::ErrorKind::InvalidInput, what));
        let ring = |size| QueueSize::new(size).map_err(|_| invalid("ring sizes are powers of two"));
        let total = NonZeroU32::new(chunks.rx + chunks.tx).ok_or(invalid("no chunks"))?;
        let umem_config = UmemConfig::builder()
            .frame_size(CHUNK.try_into().map_err(|_| invalid("chunk size"))?)
            .fill_queue_size(ring(chunks.rx)?)
            .comp_queue_size(ring(chunks.tx)?)
            .build()
            .map_err(|_| invalid("UMEM layout"))?;
        let (umem, mut rx_chunks) = Umem::new(umem_config, total, false)
            .map_err(|error| umem_error(total.get() * CHUNK / 1024, os_error(&error)))?;
        let socket_config = SocketConfig::builder()
            .rx_queue_size(ring(chunks.rx)?)
            // Twice the chunks: kernels before 6.17 complete a frame before they give its place in this ring back.
            .tx_queue_size(ring(2 * chunks.tx)?)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP | sg)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .build();
        let interface: Interface = interface.parse().map_err(|_| invalid("interface name"))?;
        // SAFETY: the socket is dropped before the UMEM it uses: xsk-rs keeps a handle on it in each socket.
        let (tx, rx, rings) = unsafe { Socket::new(socket_config, &umem, &interface, queue) }
            .map_err(|error| OpenQueueError::Bind(os_error(&error)))?;
        let (mut fill, completion) = rings.ok_or(invalid("the first socket of a UMEM brings its rings"))?;
        let free = rx_chunks.split_off(chunks.rx as usize);
        // SAFETY: the chunks were just made with this UMEM and are in no ring yet.
        unsafe { fill.produce(&rx_chunks) };
        let (written, scratch) = (Vec::with_capacity(free.len()), [FrameDesc::default(); BATCH]);
        Ok(Self {
            umem,
            rx,
            fill,
            tx,
            completion,
            free,
            written,
            scratch,
            tx_ring: 2 * chunks.tx,
            multi_buffer: !sg.is_empty(),
        })
    }

    /// Hands up to `most` received descriptors to `take`, which copies the bytes; the flag says that the frame goes on
    /// in the next one. Returns how many there were.
    pub fn receive(&mut self, most: usize, mut take: impl FnMut(&[u8], bool)) -> usize {
        let most = most.min(BATCH);
        // SAFETY: descriptors in the rx ring describe chunks of this UMEM: the kernel takes them from our fill ring.
        let count = unsafe { self.rx.consume(&mut self.scratch[..most]) };
        for desc in &self.scratch[..count] {
            // SAFETY: the kernel gave the chunk up with its descriptor and no other reference to it exists until it
            // is produced into the fill ring below.
            let data = unsafe { self.umem.data(desc) };
            take(data.contents(), desc.options() & CONTINUES != 0);
        }
        // SAFETY: these chunks were consumed from the rx ring above and are in no other ring. In aligned mode the
        // kernel masks the address down to the chunk. The fill ring has room for every receive chunk.
        unsafe { self.fill.produce(&self.scratch[..count]) };
        if count > 0 && self.fill.needs_wakeup() {
            // Zero-copy drivers only; an error means that the next readiness check finds the ring as it is.
            _ = self.rx.poll(0);
        }
        count
    }

    /// Chunks that are free for [`Self::write`].
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Chunks that a frame of `len` bytes takes.
    pub fn chunks_for(len: usize) -> usize {
        len.div_ceil(CHUNK_DATA).max(1)
    }

    /// Writes one frame into as many chunks as it takes; the caller checked [`Self::room`].
    pub fn write(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.chunks(CHUNK_DATA).peekable();
        while let Some(piece) = pieces.next() {
            let last = pieces.peek().is_none();
            self.write_chunk(piece.len(), !last, |chunk| chunk.copy_from_slice(piece));
        }
    }

    /// Lets `fill` write a frame of `len` bytes, at most [`CHUNK_DATA`], straight into a chunk.
    pub fn write_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.write_chunk(len, false, fill);
    }

    fn write_chunk(&mut self, len: usize, continues: bool, fill: impl FnOnce(&mut [u8])) {
        let Some(mut desc) = self.free.pop() else { return };
        desc.set_options(if continues { CONTINUES } else { 0 });
        // SAFETY: the chunk is one of this UMEM and, being in `free`, in no ring: nobody else refers to it.
        let mut data = unsafe { self.umem.data_mut(&mut desc) };
        data.cursor().set_pos(len);
        fill(data.contents_mut());
        self.written.push(desc);
    }

    /// Places everything written into the transmit ring.
    pub fn submit(&mut self) {
        // SAFETY: the chunks are of this UMEM, came from `free` and are in no other ring. The ring has room for
        // every transmit chunk.
        let produced = unsafe { self.tx.produce(&self.written) };
        // All or nothing. What does not fit now, which takes a kernel that gives no place back, goes with the next ones.
        if produced > 0 {
            self.written.clear();
        }
    }

    /// Calls the kernel until it has taken every frame of the transmit ring, makes no more progress, or was called
    /// [`KICKS`] times; how many calls that were and what is left. One call is not enough: in copy mode it moves 32
    /// frames and says EAGAIN.
    pub fn kick(&mut self) -> (u64, Left) {
        let mut calls = 0;
        let mut waiting = self.waiting();
        let mut left = Left::Nothing;
        while waiting > 0 && calls < KICKS {
            // The result says nothing (EAGAIN also means progress): the ring tells what was taken.
            _ = self.tx.wakeup();
            calls += 1;
            let now_waiting = self.waiting();
            left = match now_waiting {
                0 => Left::Nothing,
                some if some == waiting => Left::Stuck,
                _ => Left::Moving,
            };
            waiting = now_waiting;
            if left == Left::Stuck {
                break;
            }
        }
        self.reclaim();
        (calls, left)
    }

    /// Takes back the chunks of frames that the kernel has sent.
    pub fn reclaim(&mut self) {
        loop {
            // SAFETY: completed descriptors are chunks this queue submitted.
            let count = unsafe { self.completion.consume(&mut self.scratch) };
            self.free.extend_from_slice(&self.scratch[..count]);
            if count < BATCH {
                return;
            }
        }
    }

    /// What the kernel counted.
    pub fn stats(&self) -> io::Result<XskStats> {
        let stats = self.rx.fd().xdp_statistics()?;
        Ok(XskStats {
            rx_dropped: stats.rx_dropped(),
            rx_ring_full: stats.rx_ring_full(),
            rx_fill_ring_empty: stats.rx_fill_ring_empty_descs(),
            rx_invalid_descs: stats.rx_invalid_descs(),
            tx_invalid_descs: stats.tx_invalid_descs(),
            tx_ring_empty: stats.tx_ring_empty_descs(),
        })
    }

    /// The socket's descriptor, readable when frames wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the socket's, which `self` keeps open for as long as this borrow lasts.
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }

    /// Longest frame the socket takes.
    pub fn longest_frame(&self) -> usize {
        if self.multi_buffer { usize::MAX } else { CHUNK_DATA }
    }

    /// Frames in the transmit ring that the kernel has not taken.
    fn waiting(&mut self) -> u32 {
        self.tx_ring - self.tx.nb_free_exact()
    }
}

/// The kernel answers `ENOBUFS` if the process would lock more memory than it may (`xdp_umem_account_pages`).
fn umem_error(kib: u32, source: io::Error) -> OpenQueueError {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((limit, _)) if source.raw_os_error() == Some(libc::ENOBUFS) => {
            OpenQueueError::LockedMemory { kib, limit_kib: limit / 1024 }
        }
        _ => OpenQueueError::Umem { kib, source },
    }
}

/// The kernel's error inside one of xsk-rs.
fn os_error(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match source.and_then(io::Error::raw_os_error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    }
}
