//! Rows: one figure of ours beside a peer's.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) bench: &'static str,
    /// Which figure of it.
    pub(crate) metric: String,
    /// The figures' unit.
    pub(crate) unit: &'static str,
    /// Our median.
    pub(crate) ours: f64,
    /// Who else.
    pub(crate) peer: &'static str,
    /// Its median.
    pub(crate) peer_value: f64,
    /// Ours over the peer's.
    pub(crate) ratio: f64,
}

impl Row {
    pub(crate) fn new(
        bench: &'static str,
        metric: impl Into<String>,
        unit: &'static str,
        ours: &[f64],
        peer: &'static str,
        theirs: &[f64],
    ) -> Self {
        let (ours, peer_value) = (median(ours), median(theirs));
        Self { bench, metric: metric.into(), unit, ours, peer, peer_value, ratio: ours / peer_value }
    }
}

/// Writes `rows` to `folder/name.jsonl`.
pub(crate) fn write(rows: &[Row], folder: &Path, name: &str) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = File::create(folder.join(format!("{name}.jsonl")))?;
    for row in rows {
        writeln!(file, "{}", serde_json::to_string(row)?)?;
    }
    Ok(())
}

/// The same as a table for benches/README.md.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = "| bench and figure | Ringway | compared with | ratio |\n|---|--:|---|--:|\n".to_owned();
    for row in rows {
        let Row { bench, metric, unit, ours, peer, peer_value, ratio } = row;
        let value = |v: &f64| format!("{} {unit}", figure(*v));
        text += &format!("| {bench}: {metric} | {} | {peer}: {} | {} |\n", value(ours), value(peer_value), figure(*ratio));
    }
    text
}

/// Three significant figures, or all of a whole number's.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The middle one; of an even count, the mean of the middle two. NaN of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_string(), "2");
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_string(), "2.5");
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_row_has_the_agreed_fields() {
        let row = Row::new("sockperf tcp", "round trip, p50", "us", &[1.0], "kernel", &[4.0]);
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(
            json,
            r#"{"bench":"sockperf tcp","metric":"round trip, p50","unit":"us","ours":1.0,"peer":"kernel","peer_value":4.0,"ratio":0.25}"#
        );
    }
}
