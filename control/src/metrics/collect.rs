//! From the running switch to a page of samples.

mod devices;
mod lanes;
mod ports;
mod shapers;
mod workers;

use std::time::UNIX_EPOCH;

use lockgate_dataplane::id::GroupId;

use crate::status::totals::level;
use crate::status::{COMMIT, Running, VERSION};

use super::names;
use super::page::Page;

/// Everything there is to say now. Blocks until the workers tell their devices' counters.
pub fn collect(running: &Running) -> Page {
    let mut page = Page::default();
    configuration(&mut page, running);
    ports::collect(&mut page, running);
    shapers::collect(&mut page, running);
    fdb(&mut page, running);
    devices::collect(&mut page, running);
    lanes::collect(&mut page, running);
    workers::collect(&mut page, running);
    page
}

fn configuration(page: &mut Page, running: &Running) {
    let config = &running.config;
    page.count(&names::BUILD_INFO, &[VERSION, COMMIT], 1);
    page.count(&names::CONFIG_INFO, &[&config.hash], 1);
    page.count(&names::CONFIG_GENERATION, &[], config.generation);
    page.count(&names::CONFIG_LAST_RELOAD_SUCCESS, &[], config.last_reload_success.into());
    // A clock before 1970 is not worth an error.
    let at = config.last_reload.duration_since(UNIX_EPOCH).unwrap_or_default();
    page.set(&names::CONFIG_LAST_RELOAD_TIMESTAMP, &[], at.as_secs_f64());
}

/// What enters or leaves the table does so in every worker's copy; a refusal only where the frame was received.
fn fdb(page: &mut Page, running: &Running) {
    let totals = running.totals();
    page.count(&names::FDB_ENTRIES, &[], totals.first(|worker| level(&worker.fdb.entries)));
    page.count(&names::FDB_LIMIT, &[], running.topology.fdb.capacity as u64);
    page.count(&names::FDB_LEARNED, &[], totals.first(|worker| worker.fdb.learned.total()));
    page.count(&names::FDB_AGED, &[], totals.first(|worker| worker.fdb.aged.total()));
    page.count(&names::FDB_MOVED, &[], totals.first(|worker| worker.fdb.moved.total()));
    page.count(
        &names::FDB_REFUSED,
        &["table_full"],
        totals.sum(|worker| worker.fdb.refused_table_full.total()),
    );
    page.count(
        &names::FDB_REFUSED,
        &["port_limit"],
        totals.sum(|worker| worker.fdb.refused_port_limit.total()),
    );
    page.count(&names::FDB_REFUSED, &["flapping"], totals.sum(|worker| worker.fdb.refused_flapping.total()));
    for (id, group) in (0..).map(GroupId).zip(&running.topology.groups) {
        let of_port = |port| totals.sum(|worker| worker.port(port).table_full.total());
        let full = running.topology.members(id).map(|(port, _)| of_port(port)).sum();
        page.count(&names::PORT_GROUP_FDB_TABLE_FULL, &[&group.name], full);
    }
    page.count(&names::FDB_EVENTS_LOST, &[], totals.sum(|worker| worker.fdb.events_lost.total()));
}
