//! Which process had a number: what outlives one, and says who made it, must not be taken for the next one's with the same number.

/// Where the number counts, and when the process with it began. Zeros: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Birth {
    /// The inode of its pid namespace (pid_namespaces(7)).
    pub namespace: u32,
    /// In clock ticks since the system's start (proc_pid_stat(5), field 22).
    pub started: u64,
}

impl Birth {
    /// Of the process whose `/proc/PID/stat` that is, if it lives: one that waits for its parent to ask how it ended does not.
    pub fn started_by_stat(stat: &[u8]) -> Option<u64> {
        // The second field is the program's name in parentheses, which may have any bytes in it.
        let behind_name = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
        let fields: Vec<_> = core::str::from_utf8(behind_name).ok()?.split_ascii_whitespace().collect();
        // The first of these is the third of all. (Of a process whose first thread has left by pthread_exit, others may go on.)
        let (state, threads) = (*fields.first()?, fields.get(17)?.parse::<u64>().ok()?);
        let is_over = matches!(state, "X" | "x") || (state == "Z" && threads <= 1);
        fields.get(19)?.parse().ok().filter(|_| !is_over)
    }

    /// Whether two processes' numbers count in the same namespace, as far as that is known.
    pub fn is_beside(self, namespace: u32) -> bool {
        namespace != 0 && self.namespace == namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_begun_once() {
        let stat = std::fs::read("/proc/self/stat").unwrap();
        let started = Birth::started_by_stat(&stat).unwrap();
        assert!(started > 0);
        // proc_pid_stat(5)'s fields, by their numbers, after a name that looks like some of them.
        let of = |state: &str, threads: u32| {
            let fields: Vec<_> = (4..=52).map(|field| if field == 20 { threads } else { field }.to_string()).collect();
            Birth::started_by_stat(format!("1 (a) R 7 (b) {state} {}\n", fields.join(" ")).as_bytes())
        };
        assert_eq!((of("S", 1), of("Z", 1), of("Z", 2), of("X", 2)), (Some(22), None, Some(22), None));
        assert_eq!(Birth::started_by_stat(b"1 (a"), None);
        assert_eq!(Birth::started_by_stat(b""), None);
    }
}
