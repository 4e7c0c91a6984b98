//! What programs leave of themselves when they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_report::ProcessReport;

/// Where a program's statistics go.
pub(crate) struct Statistics(PathBuf);

impl Statistics {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("statistics-{}-{}.json", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }

    pub(crate) fn report(self) -> ProcessReport {
        let text = fs::read_to_string(&self.0).expect("its statistics");
        fs::remove_file(&self.0).expect("it was just read");
        serde_json::from_str(text.trim()).expect("a report")
    }
}
