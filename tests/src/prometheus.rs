//! Debian's Prometheus, scraping a switch of a test and answering queries about it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::clock::eventually;
use crate::http;
use crate::netns::Netns;
use crate::process::{Process, temporary_path};
use crate::switch::METRICS;

/// Where it listens, in the namespace that plays the host.
const LISTEN: &str = "127.0.0.1:9090";
/// It opens its database first.
const START_LIMIT: Duration = Duration::from_secs(15);
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);

/// A running Prometheus that scrapes [`METRICS`] every second.
#[derive(Debug)]
pub struct Prometheus<'a> {
    host: &'a Netns,
    directory: PathBuf,
    _process: Process,
}

impl<'a> Prometheus<'a> {
    /// Starts it beside the switch and waits for its first scrape.
    #[track_caller]
    pub fn start(host: &'a Netns) -> Self {
        let directory = temporary_path("prometheus");
        fs::create_dir(&directory).expect("the directory for temporary files can be written");
        let config = directory.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\n\
             scrape_configs:\n  - job_name: lockgate\n    static_configs: [{{ targets: [\"{METRICS}\"] }}]\n"
        );
        fs::write(&config, text).expect("the new directory can be written");
        let command = host.command(&format!(
            "prometheus --config.file={} --storage.tsdb.path={} --web.listen-address={LISTEN}",
            config.display(),
            directory.join("data").display()
        ));
        let prometheus = Self { host, directory, _process: Process::spawn(command) };
        eventually("Prometheus to scrape", START_LIMIT, || {
            (prometheus.try_query("up").unwrap_or_default() == Some(1.0)).then_some(())
        });
        prometheus
    }

    /// The value of a query whose answer is one number.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn query(&self, query: &str) -> f64 {
        let answer = self.try_query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        answer.unwrap_or_else(|| panic!("{query}: no series"))
    }

    /// Waits for a scrape that began after now.
    #[track_caller]
    pub fn wait_for_scrape(&self) {
        let last = |prometheus: &Self| prometheus.query("timestamp(up)");
        // The one under way may have read the page already.
        for _ in 0..2 {
            let before = last(self);
            eventually("a further scrape", SCRAPE_LIMIT, || (last(self) > before).then_some(()));
        }
    }

    fn try_query(&self, query: &str) -> Result<Option<f64>, String> {
        let body = http::try_get(self.host, LISTEN, &format!("/api/v1/query?query={}", http::encode(query)))?;
        let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        match answer["data"]["result"].as_array().map(Vec::as_slice) {
            Some([]) => Ok(None),
            Some([series]) => Ok(series["value"][1].as_str().and_then(|value| value.parse().ok())),
            _ => Err(format!("not one number: {body}")),
        }
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        // It may still write: what it makes after this is in a directory that is gone.
        _ = fs::remove_dir_all(&self.directory);
    }
}
