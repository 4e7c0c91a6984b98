//! How far a campaign is: a line that changes on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where nothing can be overwritten.
const LINE_EVERY: Duration = Duration::from_secs(10);

const TEMPLATE: &str = "{bar:24} {pos} of {len} seeds, {per_sec}, {eta} to go{msg}";

/// How far a campaign is, for a person to see.
pub(super) struct Progress {
    bar: ProgressBar,
    told: Instant,
    started: Instant,
    earlier: u64,
    total: u64,
}

impl Progress {
    /// Of `total` seeds, `earlier` were run by an earlier campaign.
    pub(super) fn new(total: u64, earlier: u64) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(total).with_style(style).with_position(earlier);
        bar.reset_eta();
        let now = Instant::now();
        Self { bar, told: now, started: now, earlier, total }
    }

    /// `done` seeds have been run by now, in this campaign.
    pub(super) fn at(&mut self, done: u64, failed: u64) {
        self.bar.set_position(self.earlier + done);
        self.bar.set_message(if failed > 0 { format!(", {failed} FAILED") } else { String::new() });
        if self.bar.is_hidden() && self.told.elapsed() >= LINE_EVERY {
            self.told = Instant::now();
            let rate = done as f64 / self.started.elapsed().as_secs_f64();
            let left = self.total.saturating_sub(self.earlier + done) as f64 / rate.max(0.001);
            let (all, total) = (self.earlier + done, self.total);
            eprintln!("{all} of {total} seeds, {failed} failed, {rate:.1} a second, {left:.0} s to go");
        }
    }

    /// Prints something that stays.
    pub(super) fn say(&self, words: &str) {
        self.bar.suspend(|| println!("{words}"));
    }

    /// Leaves the terminal to what follows.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
