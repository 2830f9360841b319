//! Families in the text formats of OpenMetrics and of Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::family::{Family, FigureKind, Labels, Value};

pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug)]
struct Snapshot(Arc<Vec<Family>>);

/// The text of families.
pub(super) fn write(families: Arc<Vec<Family>>, as_openmetrics: bool) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(families)));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = match as_openmetrics {
        true => text::encode(&mut out, &registry),
        false => prometheus_text::encode(&mut out, &registry),
    };
    out
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.0.iter().filter(|family| !family.samples.is_empty()) {
            let kind = match family.kind {
                FigureKind::Counter => MetricType::Counter,
                FigureKind::Gauge => MetricType::Gauge,
                FigureKind::Histogram => MetricType::Histogram,
                FigureKind::Info => MetricType::Info,
            };
            let mut encoder = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.samples {
                encode_sample(&mut encoder, family.kind, labels, value)?;
            }
        }
        Ok(())
    }
}

fn encode_sample(
    encoder: &mut MetricEncoder<'_>,
    kind: FigureKind,
    labels: &Labels,
    value: &Value,
) -> fmt::Result {
    if kind == FigureKind::Info {
        return encoder.encode_info(labels);
    }
    let mut one = encoder.encode_family(labels)?;
    match (kind, value) {
        (FigureKind::Counter, Value::Whole(value)) => one.encode_counter::<NoLabelSet, _, f64>(value, None),
        (FigureKind::Counter, Value::Real(value)) => one.encode_counter::<NoLabelSet, _, f64>(value, None),
        (_, Value::Whole(value)) => one.encode_gauge(value),
        (_, Value::Real(value)) => one.encode_gauge(value),
        (_, Value::Times { seconds, count, buckets }) => {
            one.encode_histogram::<NoLabelSet>(*seconds, *count, buckets, None)
        }
    }
}
