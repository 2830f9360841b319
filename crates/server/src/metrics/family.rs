//! Figures of one meaning.

use std::borrow::Cow;

pub(super) type Labels = Vec<(&'static str, Cow<'static, str>)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FigureKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

#[derive(Debug)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    /// How many times were in each bucket, by its upper bound in seconds.
    Times {
        seconds: f64,
        count: u64,
        buckets: Vec<(f64, u64)>,
    },
}

/// Figures of one meaning.
#[derive(Debug)]
pub(crate) struct Family {
    /// Without `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: FigureKind,
    pub(super) samples: Vec<(Labels, Value)>,
}

/// Families in the order of the exposition.
#[derive(Debug, Default)]
pub(super) struct Gathered(pub(super) Vec<Family>);

impl Gathered {
    pub(super) fn add(
        &mut self,
        kind: FigureKind,
        name: &'static str,
        help: &'static str,
        samples: Vec<(Labels, Value)>,
    ) {
        self.0.push(Family { name, help, kind, samples });
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(FigureKind::Counter, name, help, vec![(Vec::new(), Value::Whole(value))]);
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(FigureKind::Gauge, name, help, vec![(Vec::new(), Value::Whole(value))]);
    }

    pub(super) fn real(
        &mut self,
        kind: FigureKind,
        name: &'static str,
        help: &'static str,
        value: Option<f64>,
    ) {
        let sample = value.map(|value| (Vec::new(), Value::Real(value)));
        self.add(kind, name, help, sample.into_iter().collect());
    }

    /// A sample for each value of a label.
    pub(super) fn each<L: Into<Cow<'static, str>>>(
        &mut self,
        kind: FigureKind,
        (name, label): (&'static str, &'static str),
        help: &'static str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        let samples = samples.into_iter().map(|(of, value)| (vec![(label, of.into())], Value::Whole(value)));
        self.add(kind, name, help, samples.collect());
    }
}
