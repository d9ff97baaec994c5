//! How many frame buffers a worker gets.

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::port::BATCH;
use lockgate_dataplane::state::ForwardingState;

/// Small buffers of a worker whatever it has to do: a queue may hold half of what is free, so this lets a port of
/// 1 Gbit/s wait 20 ms in full frames twice over (16 MiB).
const SMALL: usize = 8192;
/// Large buffers of a worker: 16 MiB of super-frames, of which a port may hold half.
const LARGE: usize = 256;

/// The pool of each of `workers` workers. Every port can always receive a batch.
pub fn pool_size(state: &ForwardingState, workers: u8) -> PoolSize {
    let ports = state.ports.len().div_ceil(workers.max(1).into());
    PoolSize { small: SMALL.max(2 * BATCH * ports), large: LARGE.max(2 * ports) }
}
