//! Where the libraries to preload are: `libvma.so`, `librspreload.so` and `libringway_connectx.so`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// A library to preload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// Its file's name.
    name: &'static str,
    /// The environment variable that names it, before all other places.
    pub(crate) env: &'static str,
}

/// TCP and UDP on Ringway.
pub(crate) const VMA: Library = Library { name: "libvma.so", env: "RINGWAY_LIBVMA" };
/// The same sockets as rsockets.
pub(crate) const RSPRELOAD: Library = Library { name: "librspreload.so", env: "RINGWAY_LIBRSPRELOAD" };
/// A ConnectX in software, which programs of verbs find.
pub(crate) const CONNECTX: Library = Library { name: "libringway_connectx.so", env: "RINGWAY_CONNECTX_LIBRARY" };

/// Where distributions have libraries, below the prefix.
const FOLDERS: [&str; 3] = ["lib", "lib64", if cfg!(target_arch = "aarch64") { "lib/aarch64-linux-gnu" } else { "lib/x86_64-linux-gnu" }];

impl Library {
    /// Where it is: what its variable names, else beside this program, else in `../lib` and its like.
    ///
    /// # Errors
    /// There is none; the message says where it was looked for.
    pub(crate) fn find(self) -> Result<PathBuf> {
        let candidates = match env::var_os(self.env) {
            Some(named) => vec![PathBuf::from(named)],
            None => self.beside(&env::current_exe()?),
        };
        match candidates.iter().find(|c| c.is_file()) {
            // ld.so splits LD_PRELOAD at blanks and colons (ld.so(8)), and the program may change its directory.
            Some(found) => Ok(found.canonicalize()?),
            None => {
                let places: Vec<_> = candidates.iter().map(|c| c.display().to_string()).collect();
                bail!("{} is at none of: {}; {} may name it", self.name, places.join(", "), self.env)
            }
        }
    }

    /// Where an installation or a build has the library of the program `ringway`.
    fn beside(self, ringway: &Path) -> Vec<PathBuf> {
        let Some(folder) = ringway.parent() else { return Vec::new() };
        let mut places = vec![folder.join(self.name)];
        places.extend(folder.parent().into_iter().flat_map(|up| FOLDERS.map(|lib| up.join(lib).join(self.name))));
        // (It is in a directory of its own, so that nobody preloads it unknowingly. librdmacm's library of that name is in `rsocket`.)
        if self == RSPRELOAD {
            places.extend(folder.parent().into_iter().flat_map(|up| FOLDERS.map(|lib| up.join(lib).join("ringway").join(self.name))));
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_program_or_in_lib() {
        let places = VMA.beside(Path::new("/opt/ringway/bin/ringway"));
        assert_eq!(places[..3], ["bin/libvma.so", "lib/libvma.so", "lib64/libvma.so"].map(|place| Path::new("/opt/ringway").join(place)));
        assert_eq!(CONNECTX.beside(Path::new("/opt/ringway/bin/ringway"))[0], Path::new("/opt/ringway/bin/libringway_connectx.so"));
        let places = RSPRELOAD.beside(Path::new("/opt/ringway/bin/ringway"));
        assert!(places.contains(&Path::new("/opt/ringway/lib/ringway/librspreload.so").to_owned()));
    }
}
