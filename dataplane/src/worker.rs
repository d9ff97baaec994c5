//! A worker: one pinned thread that runs an [`Engine`] round after round and sleeps when there is nothing to do.
//!
//! It reads the clock once per round. While frames move it polls; when none moved for [`SPIN`] it sleeps until a device
//! is readable, another worker or the control side rings, or the next frame has credit. Commands arrive in a channel
//! and are handled between rounds.

pub mod clock;
pub mod poller;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use crate::buffer::PoolSize;
use crate::counters::WorkerCounters;
use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::frame::mac::MacAddr;
use crate::id::{PortId, WorkerId};
use crate::port::{Device, DeviceStats};
use crate::state::ForwardingState;
use crate::switch::Switch;
use crate::table::fdb::FdbRow;
use crate::table::fdb::flap::Flap;
use crate::time::{Instant, Nanos};

use clock::MonotonicClock;
use poller::{Poller, Waker};

/// How long a worker polls on after the last frame before it sleeps: about what going to sleep and waking up costs.
const SPIN: Nanos = Nanos::from_micros(20);
/// Time between two looks at the devices that were quiet, while others are busy.
const CHECK_EVERY: Nanos = Nanos::from_micros(50);
/// A round that received fewer frames than this is followed by a pause of [`GATHER`]. Without it a worker that is faster
/// than its senders takes frames one by one: each costs a system call of its own, and the ring's cache lines go back and
/// forth between the processors. What interrupt moderation is to a network card.
const FEW_FRAMES: usize = 16;
/// How long frames may gather. Short beside what waking up a receiver costs.
const GATHER: Nanos = Nanos::from_micros(6);
/// A wait shorter than this is polled through: the kernel would oversleep it.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(3);
/// A worker with devices wakes this often to age the MAC table and publish its gauges.
const HOUSEKEEPING: Nanos = Nanos::from_millis(250);
/// A worker answers between two rounds; one that has not after this long hangs.
const ANSWER: Duration = Duration::from_secs(5);
/// Devices that one thread closes at the end.
const CLOSED_TOGETHER: usize = 4;
/// Commands that wait for one worker at most.
const COMMANDS: usize = 64;

/// What the control side asks of a worker.
enum Command {
    Attach { port: PortId, device: Box<dyn Device>, shown: Option<MacAddr>, done: Sender<io::Result<()>> },
    AttachLane { device: Box<dyn Device>, done: Sender<io::Result<()>> },
    Detach { port: PortId, done: Sender<Option<Box<dyn Device>>> },
    SetCarrier { port: PortId, carrier: bool, shown: Option<MacAddr>, done: Sender<()> },
    Gone { reply: Sender<Vec<PortId>> },
    LaneStats { reply: Sender<Option<DeviceStats>> },
    Fdb { reply: Sender<Vec<FdbRow>> },
    Flaps { reply: Sender<(Vec<Flap>, u64)> },
    Devices { reply: Sender<Vec<(PortId, DeviceStats)>> },
    Drain { reply: Sender<Vec<Box<dyn Device>>> },
    Stop { reply: Sender<Stopped> },
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Buffers that did not come back to its pool; anything but the ones still at other workers is a leak.
    pub outstanding: usize,
    /// Frames unaccounted for.
    pub accounting_error: i64,
}

/// The control side's end of all workers.
#[derive(Debug)]
pub struct Workers {
    handles: Vec<Handle>,
    state: Arc<ForwardingState>,
}

#[derive(Debug)]
struct Handle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    counters: Arc<WorkerCounters>,
    thread: Option<JoinHandle<()>>,
}

/// A worker is gone: its thread panicked or hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {} is gone: its thread ended or hangs; restart lockgate", .0.0)]
pub struct WorkerGone(pub WorkerId);

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The worker is gone.
    #[error(transparent)]
    WorkerGone(#[from] WorkerGone),
    /// The device's descriptor could not be watched.
    #[error("cannot wait for frames of the device")]
    Watch(#[source] io::Error),
}

impl Workers {
    /// Starts `pools.len()` workers, each pinned to one of the processors this process may use, in turn.
    ///
    /// # Errors
    /// If the kernel refuses an epoll instance, an eventfd or a thread.
    pub fn start(state: &Arc<ForwardingState>, pools: &[PoolSize]) -> io::Result<Self> {
        let clock = MonotonicClock;
        let everywhere = pools.iter().map(|pool| pool.small + pool.large).sum();
        let mut switches: Vec<Switch> = (0..)
            .map(WorkerId)
            .zip(pools)
            .zip(Exchange::connect(pools))
            .map(|((me, pool), exchange)| {
                Switch::new(clock.now(), me, state.clone(), *pool, everywhere, exchange)
            })
            .collect();
        let counters: Vec<_> = switches.iter().map(Switch::counters).collect();
        switches.iter_mut().for_each(|switch| switch.exchange().watch(&counters));
        let pollers: Vec<Poller> = switches.iter().map(|_| Poller::new()).collect::<io::Result<_>>()?;
        let wakers: Vec<Arc<Waker>> = pollers.iter().map(Poller::waker).collect();
        let processors = allowed_processors();
        let mut handles = Vec::new();
        for (index, (switch, poller)) in switches.into_iter().zip(pollers).enumerate() {
            let (commands, inbox) = bounded(COMMANDS);
            let worker = Worker {
                engine: Engine::new(switch),
                clock,
                poller,
                inbox,
                wakers: wakers.clone(),
                unwatched: Vec::new(),
            };
            let processor = processors.get(index % processors.len().max(1)).copied();
            let thread = thread::Builder::new().name(format!("lg-worker-{index}")).spawn(move || {
                prepare_thread(processor);
                worker.run();
            })?;
            let (waker, counters) = (wakers[index].clone(), counters[index].clone());
            handles.push(Handle { commands, waker, counters, thread: Some(thread) });
        }
        Ok(Self { handles, state: state.clone() })
    }

    /// Gives `port` its device. `shown` is the address of the machine behind it, if known: a port that is pinned to the first
    /// address it shows is pinned to this one.
    ///
    /// # Errors
    /// If the port's worker is gone or cannot watch the device.
    pub fn attach(
        &self,
        port: PortId,
        device: Box<dyn Device>,
        shown: Option<MacAddr>,
    ) -> Result<(), AttachError> {
        let owner = self.state.port(port).worker;
        self.ask(owner, |done| Command::Attach { port, device, shown, done })?.map_err(AttachError::Watch)
    }

    /// Gives `worker` the device that receives for its ports that only send.
    ///
    /// # Errors
    /// If the worker is gone or cannot watch the device.
    pub fn attach_lane(&self, worker: WorkerId, device: Box<dyn Device>) -> Result<(), AttachError> {
        self.ask(worker, |done| Command::AttachLane { device, done })?.map_err(AttachError::Watch)
    }

    /// Takes the device of `port` away and closes it, on the calling thread: the kernel may take some 20 ms.
    ///
    /// # Errors
    /// If the port's worker is gone.
    pub fn detach(&self, port: PortId) -> Result<(), WorkerGone> {
        self.ask(self.state.port(port).worker, |done| Command::Detach { port, done }).map(drop)
    }

    /// Tells the worker of `port` whether the port's link is up. Down, frames for it are dropped at once, and what it showed is
    /// forgotten; up again it is taken to have `shown` this.
    ///
    /// # Errors
    /// If the worker is gone.
    pub fn set_carrier(&self, port: PortId, carrier: bool, shown: Option<MacAddr>) -> Result<(), WorkerGone> {
        let owner = self.state.port(port).worker;
        self.ask(owner, |done| Command::SetCarrier { port, carrier, shown, done })
    }

    /// Ports whose device is gone for good.
    ///
    /// # Errors
    /// If a worker is gone.
    pub fn gone(&self) -> Result<Vec<PortId>, WorkerGone> {
        let mut all = Vec::new();
        for worker in self.ids() {
            all.extend(self.ask(worker, |reply| Command::Gone { reply })?);
        }
        Ok(all)
    }

    /// A worker whose thread has ended although nobody stopped it.
    pub fn ended(&self) -> Option<WorkerGone> {
        let has_ended = |handle: &Handle| handle.thread.as_ref().is_some_and(JoinHandle::is_finished);
        self.ids()
            .zip(&self.handles)
            .find(|(_, handle)| has_ended(handle))
            .map(|(worker, _)| WorkerGone(worker))
    }

    /// Counters of the receiving side of each worker's lane, for those that have one.
    ///
    /// # Errors
    /// If a worker is gone.
    pub fn lanes(&self) -> Result<Vec<(WorkerId, DeviceStats)>, WorkerGone> {
        let mut all = Vec::new();
        for worker in self.ids() {
            let stats = self.ask(worker, |reply| Command::LaneStats { reply })?;
            all.extend(stats.map(|stats| (worker, stats)));
        }
        Ok(all)
    }

    /// The MAC table, from the first worker: every worker has a copy.
    ///
    /// # Errors
    /// If that worker is gone.
    pub fn fdb(&self) -> Result<Vec<FdbRow>, WorkerGone> {
        self.ask(WorkerId(0), |reply| Command::Fdb { reply })
    }

    /// Addresses that were found flapping since the last call, and how many more were not kept.
    ///
    /// # Errors
    /// If a worker is gone.
    pub fn take_flaps(&self) -> Result<(Vec<Flap>, u64), WorkerGone> {
        let mut all = (Vec::new(), 0);
        for worker in self.ids() {
            let (flaps, more) = self.ask(worker, |reply| Command::Flaps { reply })?;
            all.0.extend(flaps);
            all.1 += more;
        }
        Ok(all)
    }

    /// Counters of every device.
    ///
    /// # Errors
    /// If a worker is gone.
    pub fn devices(&self) -> Result<Vec<(PortId, DeviceStats)>, WorkerGone> {
        let mut all = Vec::new();
        for worker in self.ids() {
            all.extend(self.ask(worker, |reply| Command::Devices { reply })?);
        }
        Ok(all)
    }

    /// The counters of every worker, by [`WorkerId`].
    pub fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.handles.iter().map(|handle| handle.counters.clone()).collect()
    }

    /// The tables the workers read.
    pub fn state(&self) -> &Arc<ForwardingState> {
        &self.state
    }

    /// Detaches every device, drops what waits, and ends the threads.
    ///
    /// # Errors
    /// If a worker ended before it was asked to.
    pub fn stop(mut self) -> Result<Vec<Stopped>, WorkerGone> {
        // All let go of their devices before the first one ends: then nobody hands frames over any more. A worker that
        // is gone does not keep the others from stopping.
        let mut devices = Vec::new();
        // Twice: the second time takes what was on its way during the first, and sends its buffers home.
        for _ in 0..2 {
            let drained =
                self.ids().filter_map(|worker| self.ask(worker, |reply| Command::Drain { reply }).ok());
            devices.extend(drained.flatten());
        }
        close(devices);
        let all: Vec<_> =
            self.ids().map(|worker| self.ask(worker, |reply| Command::Stop { reply })).collect();
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (worker, handle) in self.ids().zip(&mut self.handles) {
            if let Some(thread) = handle.thread.take() {
                thread.join().map_err(|_| WorkerGone(worker))?;
            }
        }
        Ok(all)
    }

    fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..u8::try_from(self.handles.len()).unwrap_or(u8::MAX)).map(WorkerId)
    }

    fn ask<T>(&self, worker: WorkerId, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, WorkerGone> {
        let gone = WorkerGone(worker);
        let handle = self.handles.get(worker.index()).ok_or(gone)?;
        let (sender, reply) = bounded(1);
        handle.commands.send(command(sender)).map_err(|_| gone)?;
        handle.waker.wake();
        reply.recv_timeout(ANSWER).map_err(|_| gone)
    }
}

/// The thread's own part.
struct Worker {
    engine: Engine,
    clock: MonotonicClock,
    poller: Poller,
    inbox: Receiver<Command>,
    wakers: Vec<Arc<Waker>>,
    /// Ports that are too busy to be watched.
    unwatched: Vec<PortId>,
}

impl Worker {
    fn run(mut self) {
        let mut last_moved = self.clock.now();
        let mut awake_since = last_moved;
        let mut next_check = last_moved;
        loop {
            let now = self.clock.now();
            let moved = self.engine.round(now);
            self.count_round(moved);
            self.notify();
            self.unwatch_busy_ports();
            if moved {
                last_moved = now;
                if self.engine.last_received() < FEW_FRAMES {
                    self.pause_until(now + GATHER);
                }
            }
            let check = !moved || now >= next_check;
            if check {
                next_check = now + CHECK_EVERY;
                self.count_busy(now, &mut awake_since);
                if self.obey(now).is_break() {
                    return;
                }
            }
            let due = self.engine.next_deadline().map(|due| due.saturating_since(now));
            let spin = now.saturating_since(last_moved) < SPIN || due.is_some_and(|due| due < SHORTEST_SLEEP);
            if spin {
                if check {
                    self.poller.check(|port| self.engine.ready(port));
                }
                continue;
            }
            let timeout = due.map_or(HOUSEKEEPING, |due| due.min(HOUSEKEEPING));
            self.sleep(timeout, &mut awake_since);
        }
    }

    fn pause_until(&self, until: Instant) {
        while self.clock.now() < until {
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self, timeout: Nanos, awake_since: &mut Instant) {
        self.count_busy(self.clock.now(), awake_since);
        self.engine.switch().counters().rounds.sleeps.add(1);
        self.watch_again();
        let Self { engine, poller, inbox, .. } = self;
        poller.prepare_sleep();
        let has_work = !inbox.is_empty() || engine.switch_mut().exchange().has_frames();
        poller.sleep(if has_work { Nanos::ZERO } else { timeout }, |port| engine.ready(port));
        *awake_since = self.clock.now();
    }

    /// Counts the time spent awake until `now`.
    fn count_busy(&self, now: Instant, awake_since: &mut Instant) {
        self.engine.switch().counters().rounds.busy_nanos.add(now.saturating_since(*awake_since).get());
        *awake_since = now;
    }

    fn count_round(&self, moved: bool) {
        let counters = self.engine.switch().counters();
        counters.rounds.rounds.add(1);
        counters.rounds.busy_rounds.add(moved.into());
    }

    /// Stops watching the ports that have become busy, until the worker sleeps.
    fn unwatch_busy_ports(&mut self) {
        let Self { engine, poller, unwatched, .. } = self;
        while let Some(port) = engine.next_busy() {
            let fds = engine.set_watched(port, false);
            // A descriptor that is not watched needs no more.
            fds.into_iter().for_each(|fd| _ = poller.unwatch(fd));
            unwatched.push(port);
        }
    }

    fn watch_again(&mut self) {
        let Self { engine, poller, unwatched, .. } = self;
        for port in unwatched.drain(..) {
            // One that another device of the port took the place of is watched already.
            engine.set_watched(port, true).into_iter().for_each(|fd| _ = poller.watch(port, fd));
        }
    }

    /// Rings the workers that were sent frames in this round.
    fn notify(&mut self) {
        let Self { engine, wakers, .. } = self;
        for peer in engine.switch_mut().exchange().take_notified() {
            wakers[peer.index()].wake();
        }
    }

    fn obey(&mut self, now: Instant) -> std::ops::ControlFlow<()> {
        while let Ok(command) = self.inbox.try_recv() {
            // A caller that no longer waits for its answer needs none.
            match command {
                Command::Attach { port, device, shown, done } => {
                    let attached = self.attach(now, port, device);
                    self.show(now, port, shown);
                    _ = done.send(attached);
                }
                Command::AttachLane { device, done } => _ = done.send(self.attach_lane(device)),
                Command::Detach { port, done } => _ = done.send(self.engine.detach(now, port)),
                Command::SetCarrier { port, carrier, shown, done } => {
                    self.engine.set_carrier(now, port, carrier);
                    self.show(now, port, shown.filter(|_| carrier));
                    _ = done.send(());
                }
                Command::Gone { reply } => _ = reply.send(self.engine.gone()),
                Command::LaneStats { reply } => _ = reply.send(self.engine.lane_stats()),
                Command::Fdb { reply } => _ = reply.send(self.engine.switch().fdb().rows(now)),
                Command::Flaps { reply } => _ = reply.send(self.engine.switch_mut().take_flaps()),
                Command::Devices { reply } => _ = reply.send(self.engine.device_stats()),
                Command::Drain { reply } => _ = reply.send(self.engine.drain(now)),
                Command::Stop { reply } => {
                    self.engine.drain(now);
                    let switch = self.engine.switch_mut();
                    let accounting_error = switch.counters().flow.imbalance(switch.queued());
                    let outstanding = switch.pool().outstanding();
                    _ = reply.send(Stopped { outstanding, accounting_error });
                    return std::ops::ControlFlow::Break(());
                }
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    fn attach(&mut self, now: Instant, port: PortId, device: Box<dyn Device>) -> io::Result<()> {
        for fd in device.wait_fds() {
            self.poller.watch(port, fd)?;
        }
        // A device that it had before may have been too busy to be watched.
        self.unwatched.retain(|other| *other != port);
        self.engine.attach(now, port, device);
        Ok(())
    }

    fn show(&mut self, now: Instant, port: PortId, mac: Option<MacAddr>) {
        if let Some(mac) = mac {
            self.engine.show(now, port, mac);
        }
    }

    fn attach_lane(&mut self, device: Box<dyn Device>) -> io::Result<()> {
        let lane = self.engine.lane();
        for fd in device.wait_fds() {
            self.poller.watch(lane, fd)?;
        }
        self.engine.attach_lane(device);
        Ok(())
    }
}

/// Closes the devices side by side: the kernel waits some 20 ms for each socket and program to fall out of use.
fn close(devices: Vec<Box<dyn Device>>) {
    let mut devices = devices.into_iter();
    thread::scope(|scope| {
        while devices.len() > 0 {
            let share: Vec<_> = devices.by_ref().take(CLOSED_TOGETHER).collect();
            scope.spawn(move || drop(share));
        }
    });
}

/// Pins the thread and lets it wake on time: the default timer slack of 50 µs would be late for every shaped frame.
fn prepare_thread(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut only = CpuSet::new();
        only.set(processor);
        if let Err(error) = sched_setaffinity(None, &only) {
            tracing::warn!(processor, %error, "cannot pin the worker; it runs wherever the kernel puts it");
        }
    }
    if let Err(error) = set_current_timer_slack(std::num::NonZeroU64::new(1)) {
        tracing::warn!(%error, "cannot lower the timer slack; shaped frames may leave up to 50 µs late");
    }
}

/// The processors this process may use.
fn allowed_processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    // The last one first: processor 0 is where most interrupts go.
    (0..CpuSet::MAX_CPU).rev().filter(|processor| allowed.is_set(*processor)).collect()
}
