//! Workers, their buffers, and whether every frame is accounted for.

use lockgate_dataplane::counters::{RoundCounters, WorkerCounters};
use lockgate_dataplane::time::Nanos;

use crate::metrics::names;
use crate::metrics::page::{Distribution, Page};
use crate::status::Running;
use crate::status::totals::level;

/// Adds what there is to say about every worker, and about the flow of frames through all of them.
pub fn collect(page: &mut Page, running: &Running) {
    for (index, counters) in running.workers().iter().enumerate() {
        worker(page, &index.to_string(), counters);
    }
    let totals = running.totals();
    page.count(&names::FLOW_RECEIVED, &[], totals.sum(|worker| worker.flow.received.total()));
    page.count(&names::FLOW_COPIED, &[], totals.sum(|worker| worker.flow.copied.total()));
    page.count(&names::FLOW_REPLACED, &[], totals.sum(|worker| worker.flow.replaced.total()));
    page.count(&names::FLOW_COPIES_FAILED, &[], totals.sum(|worker| worker.flow.copies_failed.total()));
    page.count(&names::FLOW_SENT, &[], totals.sum(|worker| worker.flow.sent.total()));
    page.count(&names::FLOW_DROPPED, &[], totals.sum(|worker| worker.flow.dropped.total()));
    page.count(&names::FLOW_QUEUED, &[], totals.sum(|worker| level(&worker.flow.queued)));
    page.count(&names::ACCOUNTING_ERROR, &[], totals.accounting_error_frames());
}

fn worker(page: &mut Page, id: &str, counters: &WorkerCounters) {
    let WorkerCounters { rounds, flow, .. } = counters;
    page.set(&names::WORKER_BUSY, &[id], Nanos::new(rounds.busy_nanos.total()).as_secs_f64());
    page.count(&names::WORKER_POLLS, &[id], rounds.rounds.total());
    page.count(&names::WORKER_BUSY_POLLS, &[id], rounds.busy_rounds.total());
    page.count(&names::WORKER_SLEEPS, &[id], rounds.sleeps.total());
    // Every received frame was in one batch, so their number is the sum of the batches' sizes.
    page.distribution(&names::WORKER_BATCH, &[id], &batches(rounds, flow.received.total()));
    page.count(&names::BUFFERS_IN_USE, &[id], level(&flow.buffers_outstanding));
    page.count(&names::BUFFERS_FREE, &[id, "small"], level(&flow.free_small));
    page.count(&names::BUFFERS_FREE, &[id, "large"], level(&flow.free_large));
}

/// Bucket `i` of the counters holds batches of 2^i to 2^(i+1) − 1 frames; the last one holds only full batches.
#[expect(clippy::cast_precision_loss, reason = "the text format has floating-point numbers only")]
fn batches(rounds: &RoundCounters, frames: u64) -> Distribution {
    let [within @ .., full] = rounds.batches.each_ref().map(|batches| batches.total());
    let bounds = (1..).map(|exponent| f64::from((1_u32 << exponent) - 1));
    Distribution { buckets: bounds.zip(within).collect(), beyond: full, sum: frames as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let rounds = RoundCounters::default();
        [1, 2, 3, 4, 63, 64].into_iter().for_each(|frames| rounds.batch(frames));
        let buckets = vec![(1.0, 1), (3.0, 2), (7.0, 1), (15.0, 0), (31.0, 0), (63.0, 1)];
        assert_eq!(batches(&rounds, 137), Distribution { buckets, beyond: 1, sum: 137.0 });
    }
}
