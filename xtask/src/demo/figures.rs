//! Round-trip times of both worlds: percentiles, the ratio, and a histogram on a logarithmic scale.

use serde_json::json;

use super::proof::Carried;

/// The percentiles that are shown, as shares of all round trips.
const SHARES: [(&str, f64); 6] = [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// The longest bar of the histogram, in characters.
const BAR: u64 = 34;

/// Round-trip times in nanoseconds.
#[derive(Default)]
pub(super) struct Figures(Vec<u32>);

impl Figures {
    pub(super) fn add(&mut self, samples: &[u32]) {
        self.0.extend_from_slice(samples);
    }

    pub(super) fn sort(&mut self) {
        self.0.sort_unstable();
    }

    /// The time that a share of the round trips did not exceed. Of sorted figures.
    fn percentile(&self, share: f64) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index")]
        let at = (share * self.0.len() as f64) as usize;
        self.0.get(at).or(self.0.last()).copied().unwrap_or(0)
    }

    fn count_between(&self, low_ns: f64, high_ns: f64) -> u64 {
        self.0.iter().filter(|&&ns| (low_ns..high_ns).contains(&f64::from(ns))).count() as u64
    }
}

/// The table, the ratio and the histogram.
pub(super) fn print(protocol: &str, kernel: &Figures, ringway: &Figures) {
    println!("\n{protocol} round trip, microseconds");
    print!("{:10}", "");
    for (name, _) in SHARES {
        print!("{name:>10}");
    }
    for (name, figures) in [("kernel", kernel), ("Ringway", ringway)] {
        print!("\n{name:10}");
        for (_, share) in SHARES {
            print!("{:>10.2}", f64::from(figures.percentile(share)) / 1e3);
        }
    }
    print!("\n{:10}", "ratio");
    for (_, share) in SHARES {
        print!("{:>10}", format!("{:.1}x", f64::from(kernel.percentile(share)) / f64::from(ringway.percentile(share).max(1))));
    }
    println!("\n");
    histogram(kernel, ringway);
}

/// One row for each half of a doubling, from the fastest to what one round trip in a hundred exceeds.
fn histogram(kernel: &Figures, ringway: &Figures) {
    let (low, high) = [kernel, ringway]
        .iter()
        .fold((f64::MAX, 0.0_f64), |(low, high), f| (low.min(f64::from(f.percentile(0.0))), high.max(f64::from(f.percentile(0.99)))));
    let step = std::f64::consts::SQRT_2;
    let mut rows = Vec::new();
    let mut from = step.powf(low.max(1.0).log(step).floor());
    while from <= high {
        rows.push((from, kernel.count_between(from, from * step), ringway.count_between(from, from * step)));
        from *= step;
    }
    let most = rows.iter().flat_map(|&(_, k, r)| [k, r]).max().unwrap_or(0).max(1);
    let bar = |count: u64, mark: &str| mark.repeat(usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0));
    let width = usize::try_from(BAR).unwrap_or(0);
    println!("{:>17}  {:width$}  Ringway", "us", "kernel");
    for (from, k, r) in rows {
        let row = format!("{:7.2} - {:7.2}  {:width$}  {}", from / 1e3, from * step / 1e3, bar(k, "."), bar(r, "#"));
        println!("{}", row.trim_end());
    }
}

/// The same as one line of JSON.
pub(super) fn json(protocol: &str, kernel: &Figures, ringway: &Figures, carried: &Carried, sent_by_kernel: [u64; 2]) -> String {
    let of = |figures: &Figures| {
        let pairs = SHARES.iter().map(|&(name, share)| (format!("{name}_ns"), json!(figures.percentile(share))));
        serde_json::Value::Object(pairs.collect())
    };
    json!({
        "protocol": protocol.to_lowercase(),
        "kernel": of(kernel),
        "ringway": of(ringway),
        "ratio_p50": f64::from(kernel.percentile(0.5)) / f64::from(ringway.percentile(0.5).max(1)),
        "ring_frames": carried.frames,
        "ring_bytes": carried.bytes,
        "kernel_packets_in_kernel_rounds": sent_by_kernel[0],
        "kernel_packets_in_ringway_rounds": sent_by_kernel[1],
    })
    .to_string()
}
