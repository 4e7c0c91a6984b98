//! Where `libvma.so` is, and `libringway_connectx.so`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// A library that `ringway run` preloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// `libvma.so`.
    Vma,
    /// `libringway_connectx.so`.
    Connectx,
}

impl Library {
    /// Its file name.
    const fn file(self) -> &'static str {
        match self {
            Self::Vma => "libvma.so",
            Self::Connectx => "libringway_connectx.so",
        }
    }

    /// The environment variable that names it, before all other places.
    const fn env(self) -> &'static str {
        match self {
            Self::Vma => "RINGWAY_LIBVMA",
            Self::Connectx => "RINGWAY_CONNECTX_LIBRARY",
        }
    }
}

/// Where distributions have libraries, below the prefix.
const FOLDERS: [&str; 3] = ["lib", "lib64", if cfg!(target_arch = "aarch64") { "lib/aarch64-linux-gnu" } else { "lib/x86_64-linux-gnu" }];

/// `libvma.so`: what `RINGWAY_LIBVMA` names, else beside this program, else in `../lib` and its like.
///
/// # Errors
/// As [`find_one`].
pub(crate) fn find() -> Result<PathBuf> {
    find_one(Library::Vma)
}

/// A library: what its variable names, else beside this program, else in `../lib` and its like.
///
/// # Errors
/// There is none; the message says where it was looked for.
pub(crate) fn find_one(library: Library) -> Result<PathBuf> {
    let candidates = match env::var_os(library.env()) {
        Some(named) => vec![PathBuf::from(named)],
        None => beside(&env::current_exe()?, library.file()),
    };
    match candidates.iter().find(|c| c.is_file()) {
        // ld.so splits LD_PRELOAD at blanks and colons (ld.so(8)), and the program may change its directory.
        Some(found) => Ok(found.canonicalize()?),
        None => {
            let places: Vec<_> = candidates.iter().map(|c| c.display().to_string()).collect();
            bail!("{} is at none of: {}; {} may name it", library.file(), places.join(", "), library.env())
        }
    }
}

/// Where an installation or a build has the library of the program `ringway`.
fn beside(ringway: &Path, name: &str) -> Vec<PathBuf> {
    let Some(folder) = ringway.parent() else { return Vec::new() };
    let mut places = vec![folder.join(name)];
    places.extend(folder.parent().into_iter().flat_map(|up| FOLDERS.map(|lib| up.join(lib).join(name))));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_program_or_in_lib() {
        let places = beside(Path::new("/opt/ringway/bin/ringway"), Library::Vma.file());
        assert_eq!(places[..3], ["bin/libvma.so", "lib/libvma.so", "lib64/libvma.so"].map(|place| Path::new("/opt/ringway").join(place)));
        let places = beside(Path::new("/opt/ringway/bin/ringway"), Library::Connectx.file());
        assert_eq!(places[0], Path::new("/opt/ringway/bin/libringway_connectx.so"));
    }
}
