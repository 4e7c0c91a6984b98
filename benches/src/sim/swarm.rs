//! Seeds of the default swarm, one after the other on one core, each played once with everything checked.

use std::time::Instant;

use anyhow::Result;
use ringway_sim::scenario::{Scenario, Stage};

use crate::row;

/// How long seeds took.
pub(super) struct Seeds {
    pub(super) per_minute: f64,
    pub(super) median_ms: f64,
}

/// Plays the seeds `0..count`. One that fails panics, and says how to replay it.
pub(super) fn seeds(count: u64) -> Result<Seeds> {
    let start = Instant::now();
    let millis: Vec<f64> = (0..count)
        .map(|seed| {
            let start = Instant::now();
            Stage::set(&Scenario::of_seed(seed)).play();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    Ok(Seeds { per_minute: count as f64 / start.elapsed().as_secs_f64() * 60.0, median_ms: row::median(&millis) })
}
