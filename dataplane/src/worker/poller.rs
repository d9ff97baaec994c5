//! What a worker sleeps on: the descriptors of its devices and one that other threads ring.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::id::PortId;
use crate::time::Nanos;

/// Events taken from the kernel in one call.
const EVENTS: usize = 64;
const WAKER: u64 = u64::MAX;

/// Sleeps until a device is readable, a waker rings, or a deadline passes.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    waker: Arc<Waker>,
}

/// Rings one worker out of its sleep.
///
/// The worker sets `asleep`, then looks for work once more, then sleeps; whoever sends work does so first and rings
/// only if `asleep` is set. Both sides are sequentially consistent, so one of them always sees the other, and a busy
/// worker costs its senders no system call.
#[derive(Debug)]
pub struct Waker {
    asleep: AtomicBool,
    event: OwnedFd,
}

impl Waker {
    /// Wakes the worker if it sleeps or is about to.
    pub fn wake(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // Only a full counter can refuse, and then the worker is awake already.
            _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl Poller {
    /// A poller with its waker and no device.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        let waker = Arc::new(Waker { asleep: AtomicBool::new(false), event });
        Ok(Self { epoll, waker })
    }

    /// The waker other threads ring.
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Reports `port` when `fd` is readable. The registration ends when the descriptor is closed.
    pub fn watch(&self, port: PortId, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(u64::from(port.0)), epoll::EventFlags::IN)?)
    }

    /// Reports `fd` no longer.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Reports the ports that are readable now, without sleeping.
    pub fn check(&mut self, ready: impl FnMut(PortId)) {
        self.wait(Some(Nanos::ZERO), ready);
    }

    /// From here on wakers ring. Look for work once more after this, then [`Self::sleep`].
    pub fn prepare_sleep(&self) {
        self.waker.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Sleeps until something is readable or a waker rings, at most `timeout`.
    pub fn sleep(&mut self, timeout: Nanos, ready: impl FnMut(PortId)) {
        self.wait(Some(timeout), ready);
        self.waker.asleep.store(false, Ordering::SeqCst);
    }

    fn wait(&mut self, timeout: Option<Nanos>, mut ready: impl FnMut(PortId)) {
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.get() / 1_000_000_000).cast_signed(),
            tv_nsec: (span.get() % 1_000_000_000).cast_signed(),
        });
        let mut events = [MaybeUninit::uninit(); EVENTS];
        // An interrupted wait is one that found nothing.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout.as_ref()) else { return };
        for event in events {
            match event.data.u64() {
                WAKER => _ = rustix::io::read(&self.waker.event, &mut [0; 8]),
                port => ready(PortId(u16::try_from(port).unwrap_or(u16::MAX))),
            }
        }
    }
}
