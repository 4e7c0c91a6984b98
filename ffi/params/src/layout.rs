//! Which layout of `vma_api_t` a release of libvma's has (vma.md s1.1): the table says nothing of its own version, so VMA_API_LAYOUT does.

/// A layout that is served. Those of other releases are a beginning of one of them, and have its structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// D: 9.8.70 and later, and 9.8.32 and later, which has all but its last function.
    D,
    /// C1: 9.3.0 to 9.8.31; D with get_dpcp_devices in ioctl's place.
    C1,
    /// B: 9.0.1 to 9.2.2; and from 8.6.1 on, of which each has a beginning of it. (8.6.0 and 8.5 have that as well, but packets without
    /// timestamps.)
    B,
    /// A0: 8.4.
    A0,
}

/// What [`Layout::of_release`] takes.
pub(crate) const RELEASES: &str = "a release of libvma: 8.4, 8.6.1 to 8.9 or 9.0 to 9.8, also with its third number (9.2.2)";

impl Layout {
    /// The layout that a release's header has: `MAJOR.MINOR` or `MAJOR.MINOR.PATCH`. `None`: there is no such release, or none whose
    /// layout is served.
    pub fn of_release(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let (major, minor) = (number(parts.next()?)?, number(parts.next()?)?);
        let patch = parts.next().map_or(Some(None), |patch| number(patch).map(Some))?;
        if parts.next().is_some() {
            return None;
        }
        match (major, minor, patch) {
            (9, 3..=7, _) | (9, 8, Some(0..=31)) => Some(Self::C1),
            (9, 8, _) => Some(Self::D),
            (9, 0..=2, _) | (8, 7..=9, _) | (8, 6, Some(1..)) => Some(Self::B),
            (8, 4, _) => Some(Self::A0),
            _ => None,
        }
    }

    /// The name by which it is shown: its release that people know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::D => "9.8",
            Self::C1 => "9.3",
            Self::B => "9.2",
            Self::A0 => "8.4",
        }
    }
}

/// Digits alone: `+9` is no release.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_the_layouts_that_are_known_of_them() {
        for (layout, releases) in [
            (Layout::D, &["9.8", "9.8.70", "9.8.84", "9.8.40", "9.8.60", " 9.8 "][..]),
            (Layout::C1, &["9.3", "9.3.0", "9.4.1", "9.7.2", "9.8.0", "9.8.31"]),
            (Layout::B, &["9.2", "9.2.2", "9.1", "9.0.1", "8.9.5", "8.9", "8.7", "8.6.1"]),
            (Layout::A0, &["8.4", "8.4.10"]),
        ] {
            for release in releases {
                assert_eq!(Layout::of_release(release), Some(layout), "{release}");
            }
            assert_eq!(Layout::of_release(layout.name()), Some(layout), "a name means itself");
        }
        for unknown in ["7", "9", "9.9", "10.0", "8.6", "8.6.0", "8.5.7", "8.3", "9.8.", ".8", "9.8.70.1", "+9.8", "9.x", "", "D", "latest"]
        {
            assert_eq!(Layout::of_release(unknown), None, "{unknown}");
        }
    }
}
