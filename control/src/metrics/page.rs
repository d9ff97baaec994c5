//! A page of samples under construction.
//!
//! Built on the `prometheus` crate's data model and text encoder without its registry: the dataplane counts, and a
//! registry beside it would have to be told of every port that comes and goes.

use std::collections::HashMap;

use prometheus::TextEncoder;
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

use super::names::{ALL, Kind, Metric};

/// Samples by metric.
#[derive(Debug, Default)]
pub struct Page(HashMap<&'static str, Vec<proto::Metric>>);

/// A histogram's buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Upper bound and number of samples of each bucket, not cumulative, in ascending order.
    pub buckets: Vec<(f64, u64)>,
    /// Samples beyond the last bound.
    pub beyond: u64,
    /// Sum of all samples.
    pub sum: f64,
}

impl Page {
    /// Adds a counter's or a gauge's sample. A `u64` is exact up to 2^53, which 9 PB of traffic reach.
    ///
    /// `labels` are values in the order of [`Metric::labels`].
    pub fn set(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        let mut sample = labelled(metric, labels);
        match metric.kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                sample.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                sample.set_gauge(gauge);
            }
            Kind::Histogram => debug_assert!(false, "{} is a histogram", metric.name),
        }
        self.0.entry(metric.name).or_default().push(sample);
    }

    /// Adds a whole number. See [`Self::set`].
    #[expect(clippy::cast_precision_loss, reason = "the text format has floating-point numbers only")]
    pub fn count(&mut self, metric: &Metric, labels: &[&str], value: u64) {
        self.set(metric, labels, value as f64);
    }

    /// Adds a histogram's sample.
    pub fn distribution(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution) {
        debug_assert_eq!(metric.kind, Kind::Histogram, "{}", metric.name);
        let mut so_far = 0;
        let buckets = distribution.buckets.iter().map(|(bound, samples)| {
            so_far += samples;
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(so_far);
            bucket
        });
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(so_far + distribution.beyond);
        histogram.set_sample_sum(distribution.sum);
        let mut sample = labelled(metric, labels);
        sample.set_histogram(histogram);
        self.0.entry(metric.name).or_default().push(sample);
    }

    /// The page as text, metrics in the order of the table; one without samples is left out.
    ///
    /// # Errors
    /// If the encoder refuses a sample.
    pub fn encode(mut self) -> Result<String, prometheus::Error> {
        let families = ALL.iter().filter_map(|metric| {
            let samples = self.0.remove(metric.name)?;
            let mut family = MetricFamily::default();
            family.set_name(metric.name.to_owned());
            family.set_help(metric.help.to_owned());
            family.set_field_type(match metric.kind {
                Kind::Counter => MetricType::COUNTER,
                Kind::Gauge => MetricType::GAUGE,
                Kind::Histogram => MetricType::HISTOGRAM,
            });
            family.set_metric(samples);
            Some(family)
        });
        TextEncoder::new().encode_to_string(&families.collect::<Vec<_>>())
    }
}

fn labelled(metric: &Metric, values: &[&str]) -> proto::Metric {
    debug_assert_eq!(metric.labels.len(), values.len(), "labels of {}", metric.name);
    let labels = metric.labels.iter().zip(values).map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value((*value).to_owned());
        label
    });
    proto::Metric::from_label(labels.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::names;

    #[test]
    fn metrics_come_in_the_order_of_the_table_with_help_and_type_once() {
        let mut page = Page::default();
        page.count(&names::PORT_MTU, &["web2"], 9000);
        page.count(&names::PORT_UP, &["web1"], 1);
        page.count(&names::PORT_UP, &["web2"], 0);
        let text = page.encode().unwrap();
        let expected = format!(
            "# HELP lockgate_port_up {}\n# TYPE lockgate_port_up gauge\n\
             lockgate_port_up{{port=\"web1\"}} 1\nlockgate_port_up{{port=\"web2\"}} 0\n\
             # HELP lockgate_port_mtu_bytes {}\n# TYPE lockgate_port_mtu_bytes gauge\n\
             lockgate_port_mtu_bytes{{port=\"web2\"}} 9000\n",
            names::PORT_UP.help,
            names::PORT_MTU.help,
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn buckets_are_cumulative_and_end_in_infinity() {
        let distribution = Distribution { buckets: vec![(1.0, 2), (3.0, 5)], beyond: 4, sum: 99.5 };
        let mut page = Page::default();
        page.distribution(&names::WORKER_BATCH, &["0"], &distribution);
        let text = page.encode().unwrap();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            r#"lockgate_worker_batch_frames_bucket{worker="0",le="1"} 2"#,
            r#"lockgate_worker_batch_frames_bucket{worker="0",le="3"} 7"#,
            r#"lockgate_worker_batch_frames_bucket{worker="0",le="+Inf"} 11"#,
            r#"lockgate_worker_batch_frames_sum{worker="0"} 99.5"#,
            r#"lockgate_worker_batch_frames_count{worker="0"} 11"#,
        ];
        assert_eq!(samples, expected);
    }
}
