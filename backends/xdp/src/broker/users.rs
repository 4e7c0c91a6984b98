//! Whom a broker serves: by user ids, as the kernel tells them of a connection (SO_PEERCRED).

use core::ptr;
use std::collections::BTreeSet;
use std::ffi::CString;

/// Root, and those who are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeSet<u32>);

/// There is no such user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no user is called {0:?}")]
pub struct UnknownUser(pub String);

impl Users {
    /// Of names and numbers, with commas between them.
    ///
    /// # Errors
    /// [`UnknownUser`].
    pub fn parse(list: &str) -> Result<Self, UnknownUser> {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        words
            .map(|word| word.parse().ok().or_else(|| id_of(word)).ok_or_else(|| UnknownUser(word.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether that user is served.
    pub fn has(&self, uid: u32) -> bool {
        uid == 0 || self.0.contains(&uid)
    }

    /// Those who are listed.
    pub fn listed(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

fn id_of(name: &str) -> Option<u32> {
    /// What a user's entry may take: more than any has (sysconf(3), _SC_GETPW_R_SIZE_MAX, is but a hint).
    const ENTRY_MAX: usize = 1 << 16;
    let name = CString::new(name).ok()?;
    // SAFETY: all zeroes is a valid entry.
    let mut entry: libc::passwd = unsafe { core::mem::zeroed() };
    let (mut buffer, mut found) = (vec![0; ENTRY_MAX], ptr::null_mut());
    // SAFETY: the name ends with a zero; all else is writable, the buffer for its length.
    let error = unsafe { libc::getpwnam_r(name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
    (error == 0 && !found.is_null()).then_some(entry.pw_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_or_numbered() {
        let users = Users::parse("nobody, 1000,").unwrap();
        assert_eq!(users.listed().collect::<Vec<_>>(), [1000, 65534]);
        assert!(users.has(0) && users.has(1000) && !users.has(1001) && !Users::default().has(1000));
        assert_eq!(Users::parse("1000,no such user"), Err(UnknownUser("no such user".to_owned())));
        assert_eq!(Users::parse("-1"), Err(UnknownUser("-1".to_owned())));
    }
}
