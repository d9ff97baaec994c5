//! `switch:`, `metrics:` and `api:`, each read on its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lockgate_dataplane::state::FdbSettings;
use lockgate_dataplane::time::Nanos;

use super::diagnostic::{Diagnostics, Located};
use super::reader::{Field, Reader, Schema};
use super::scalar::{self, Fault, Scalar};
use super::units;
use crate::topology::Workers;

const DEFAULT_NAME: &str = "sw0";
const DEFAULT_METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9478);
const DEFAULT_API_SOCKET: &str = "/run/lockgate/lockgate.sock";
const DEFAULT_FDB: FdbSettings = FdbSettings { capacity: 8192, age: Nanos::from_secs(300) };

const MAX_WORKERS: u64 = 64;
const FDB_CAPACITY_MIN: u64 = 16;
const FDB_CAPACITY_MAX: u64 = 1_000_000;
const FDB_AGE_MIN: Nanos = Nanos::from_secs(10);
const FDB_AGE_MAX: Nanos = Nanos::from_secs(1_000_000);

const SWITCH: Schema = Schema { known: &["name", "workers", "mac_table"], later: &[] };
const MAC_TABLE: Schema = Schema { known: &["size", "age"], later: &[] };
const METRICS: Schema = Schema { known: &["listen"], later: &[] };
const API: Schema = Schema { known: &["socket"], later: &[] };

/// The settings of the switch as a whole, defaults filled in.
#[derive(Clone, Debug)]
pub struct SettingsConfig {
    /// Name of the switch.
    pub name: String,
    /// How many worker threads, if it was written.
    pub workers: Option<Located<Workers>>,
    /// Bounds of the MAC table.
    pub fdb: FdbSettings,
    /// Where metrics are served.
    pub metrics_listen: SocketAddr,
    /// Where the command line reaches the daemon.
    pub api_socket: PathBuf,
}

impl Default for SettingsConfig {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            workers: None,
            fdb: DEFAULT_FDB,
            metrics_listen: DEFAULT_METRICS,
            api_socket: PathBuf::from(DEFAULT_API_SOCKET),
        }
    }
}

impl SettingsConfig {
    /// Reads `switch:`.
    pub fn read_switch(&mut self, diagnostics: &mut Diagnostics, field: Field<'_>) {
        let mut reader = Reader::new(diagnostics, "switch");
        let Some(fields) = reader.fields(field, &SWITCH) else { return };
        if let Some(name) = fields.get("name").and_then(|field| reader.value(field, scalar::name)) {
            self.name = name.value;
        }
        self.workers = fields.get("workers").and_then(|field| reader.value(field, workers));
        if let Some(field) = fields.get("mac_table") {
            self.read_mac_table(&mut reader.part("mac_table"), field);
        }
    }

    /// Reads `metrics:`.
    pub fn read_metrics(&mut self, diagnostics: &mut Diagnostics, field: Field<'_>) {
        let mut reader = Reader::new(diagnostics, "metrics");
        let Some(fields) = reader.fields(field, &METRICS) else { return };
        if let Some(listen) =
            fields.get("listen").and_then(|field| reader.value(field, scalar::socket_address))
        {
            self.metrics_listen = listen.value;
        }
    }

    /// Reads `api:`.
    pub fn read_api(&mut self, diagnostics: &mut Diagnostics, field: Field<'_>) {
        let mut reader = Reader::new(diagnostics, "api");
        let Some(fields) = reader.fields(field, &API) else { return };
        if let Some(socket) = fields.get("socket").and_then(|field| reader.value(field, scalar::socket_path))
        {
            self.api_socket = socket.value;
        }
    }

    fn read_mac_table(&mut self, reader: &mut Reader<'_>, field: Field<'_>) {
        let Some(fields) = reader.fields(field, &MAC_TABLE) else { return };
        let entries = scalar::integer(FDB_CAPACITY_MIN..=FDB_CAPACITY_MAX);
        if let Some(size) = fields.get("size").and_then(|field| reader.value(field, entries)) {
            self.fdb.capacity = size.value;
        }
        let age = fields.get("age");
        if let Some(age) =
            age.and_then(|field| reader.value(field, units::duration(FDB_AGE_MIN, FDB_AGE_MAX)))
        {
            self.fdb.age = age.value;
        }
    }
}

fn workers(scalar: &Scalar) -> Result<Workers, Fault> {
    if scalar.text == "auto" {
        return Ok(Workers::Auto);
    }
    let count = scalar::integer(1..=MAX_WORKERS)(scalar);
    count
        .map(Workers::Count)
        .map_err(|fault| fault.help(format!("write `auto` or a number from 1 to {MAX_WORKERS}")))
}
