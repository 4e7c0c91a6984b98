//! Where send buffers lie.

use super::small;
use crate::layout::POOL_AT;
use crate::pool::Pool;
use crate::{Settings, attach};

/// What the kernel knows of the only mapping of so many bytes, in its own letters (proc(5), VmFlags).
fn flags_of(bytes: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let size = format!("{} kB", bytes / 1024);
    let mut is_ours = false;
    for line in maps.lines() {
        if let Some(of) = line.strip_prefix("Size:") {
            is_ours = of.trim() == size;
        } else if is_ours && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.to_owned();
        }
    }
    panic!("no mapping of {size}");
}

#[test]
fn huge_pages_are_asked_for_where_they_are_wished_for() {
    let has_any = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    // Sizes that no other test's pool has.
    for (huge_pages, buffers) in [(false, 101), (true, 103)] {
        let settings = Settings { huge_pages, pool_bytes: buffers << 17, ..small() };
        let (_device, _rendezvous) = attach(&settings).unwrap();
        let (small, large) = settings.pool_shape();
        let flags = flags_of((POOL_AT + Pool::bytes(small, large)).next_multiple_of(4096));
        assert_eq!(flags.split_whitespace().any(|flag| flag == "hg"), huge_pages && has_any, "{flags}");
    }
}
