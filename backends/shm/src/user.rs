//! Whose process this is, as far as others can be told from it.
//!
//! Members know each other's user by what the kernel says of the other end of a socket (SO_PEERCRED), in terms of the own user namespace. Every
//! user that has no number there is shown under the same one, the overflow user's (user_namespaces(7)). So who has that number
//! cannot tell the own user from others, unless the namespace maps all users, as the initial one does: there it is an ordinary
//! user, `nobody`.

use crate::error::AttachError;
use crate::sys;

/// Where /proc does not say otherwise.
const OVERFLOW_UID: u32 = 65534;
/// The numbers that a user can have: the last is none (user_namespaces(7)).
const ALL_USERS: u64 = 4_294_967_295;

/// The effective user.
///
/// # Errors
/// [`AttachError::UnknownUser`]: other users cannot be told from it.
pub(crate) fn own() -> Result<u32, AttachError> {
    let uid = sys::effective_uid();
    let read = |path| std::fs::read_to_string(path).ok();
    // (The number can be another one; a process without /proc does not see that.)
    let overflow = read("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW_UID);
    if uid == overflow && !read("/proc/self/uid_map").is_some_and(|map| maps_all(&map)) {
        return Err(AttachError::UnknownUser { uid });
    }
    Ok(uid)
}

/// Whether a map leaves out no user. Its lines do not overlap: first number inside, first outside, how many.
fn maps_all(map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2).and_then(|count| count.parse::<u64>().ok());
    map.lines().filter_map(count).sum::<u64>() >= ALL_USERS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tests::small;

    #[test]
    fn only_a_whole_map_maps_all() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(maps_all("0 0 1000\n1000 5000 4294966295\n"));
        for map in ["", "0 100000 65536\n", "65534 65534 1\n", "a b c\n"] {
            assert!(!maps_all(map), "{map}");
        }
    }

    #[test]
    fn a_user_without_a_number_is_refused() {
        // SAFETY: the child has one thread, so it may enter a user namespace; it attaches, and ends without a look back.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain integers.
            unsafe {
                if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                    libc::_exit(2);
                }
                let is_refused = matches!(crate::attach(&small()), Err(AttachError::UnknownUser { uid: OVERFLOW_UID }));
                libc::_exit(i32::from(!is_refused));
            }
        }
        let mut status = 0;
        // SAFETY: our own child, and a writable word.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(libc::WIFEXITED(status));
        if libc::WEXITSTATUS(status) == 2 {
            assert!(std::env::var_os("CI").is_none(), "no user namespace is to be had");
            return;
        }
        assert_eq!(libc::WEXITSTATUS(status), 0, "a process attached whose user cannot be told from others");
    }
}
