//! Shapers, in the directions that have one.

use lockgate_dataplane::counters::SojournHistogram;
use lockgate_dataplane::id::{Direction, GroupId};
use lockgate_dataplane::units::BitsPerSecond;

use crate::metrics::names;
use crate::metrics::page::{Distribution, Page};
use crate::status::Running;
use crate::status::totals::Sojourn;

/// Adds what there is to say about every shaper.
pub fn collect(page: &mut Page, running: &Running) {
    let (topology, totals) = (&running.topology, running.totals());
    for (id, port) in topology.port_ids().zip(&topology.ports) {
        for direction in Direction::ALL {
            let Some(limit) = port.shaping(direction) else { continue };
            let labels = ["port", port.name.as_str(), direction.name()];
            let [level, name, way] = labels;
            page.set(
                &names::SHAPER_RATE_LIMIT,
                &[level, name, way, "average"],
                bytes_per_second(limit.shaping.average),
            );
            if let Some(peak) = limit.shaping.peak {
                page.set(&names::SHAPER_RATE_LIMIT, &[level, name, way, "peak"], bytes_per_second(peak));
            }
            page.count(&names::SHAPER_BURST_LIMIT, &labels, limit.shaping.burst.get());
            let total = totals.shaper(id, direction);
            page.set(&names::SHAPER_CREDIT, &labels, credit(total.credit_bytes));
            page.count(&names::SHAPER_QUEUE_BYTES, &labels, total.queue_bytes);
            page.count(&names::SHAPER_QUEUE_FRAMES, &labels, total.queue_frames);
            page.count(&names::SHAPER_QUEUE_HIGH_WATER, &labels, total.queue_high_water_bytes);
            page.count(&names::SHAPER_DELAYED, &labels, total.delayed_frames);
            page.set(&names::SHAPER_THROTTLED, &labels, total.throttled.as_secs_f64());
        }
    }
    // A histogram for each group: one for each port would be most of the page.
    for (id, group) in (0..).map(GroupId).zip(&topology.groups) {
        for direction in Direction::ALL {
            let shaped = topology.members(id).filter(|(_, port)| port.shaping(direction).is_some());
            let mut shaped = shaped.map(|(port, _)| port).peekable();
            if shaped.peek().is_some() {
                let sojourn = distribution(&totals.sojourn(shaped, direction));
                page.distribution(
                    &names::SHAPER_SOJOURN,
                    &["group", &group.name, direction.name()],
                    &sojourn,
                );
            }
        }
    }
}

fn distribution(sojourn: &Sojourn) -> Distribution {
    let [within @ .., beyond] = sojourn.frames;
    let bounds = SojournHistogram::BOUNDS.iter().map(|bound| bound.as_secs_f64());
    Distribution { buckets: bounds.zip(within).collect(), beyond, sum: sojourn.sum.as_secs_f64() }
}

#[expect(clippy::cast_precision_loss, reason = "400 Gbit/s are far below 2^53")]
fn bytes_per_second(rate: BitsPerSecond) -> f64 {
    rate.get() as f64 / 8.0
}

#[expect(clippy::cast_precision_loss, reason = "a bucket is far shallower than 2^53 bytes")]
fn credit(bytes: i64) -> f64 {
    bytes as f64
}
