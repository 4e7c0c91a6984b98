//! Where `libvma.so` is.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The library's file name.
const NAME: &str = "libvma.so";

/// Where distributions have libraries, below the prefix.
const FOLDERS: [&str; 3] = ["lib", "lib64", if cfg!(target_arch = "aarch64") { "lib/aarch64-linux-gnu" } else { "lib/x86_64-linux-gnu" }];

/// The environment variable that names the library, before all other places.
pub(crate) const ENV: &str = "RINGWAY_LIBVMA";

/// The library: what `RINGWAY_LIBVMA` names, else beside this program, else in `../lib` and its like.
///
/// # Errors
/// There is none; the message says where it was looked for.
pub(crate) fn find() -> Result<PathBuf> {
    let candidates = match env::var_os(ENV) {
        Some(named) => vec![PathBuf::from(named)],
        None => beside(&env::current_exe()?),
    };
    match candidates.iter().find(|c| c.is_file()) {
        // ld.so splits LD_PRELOAD at blanks and colons (ld.so(8)), and the program may change its directory.
        Some(found) => Ok(found.canonicalize()?),
        None => {
            let places: Vec<_> = candidates.iter().map(|c| c.display().to_string()).collect();
            bail!("{NAME} is at none of: {}; {ENV} may name it", places.join(", "))
        }
    }
}

/// Where an installation or a build has the library of the program `ringway`.
fn beside(ringway: &Path) -> Vec<PathBuf> {
    let Some(folder) = ringway.parent() else { return Vec::new() };
    let mut places = vec![folder.join(NAME)];
    places.extend(folder.parent().into_iter().flat_map(|up| FOLDERS.map(|lib| up.join(lib).join(NAME))));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_program_or_in_lib() {
        let places = beside(Path::new("/opt/ringway/bin/ringway"));
        assert_eq!(places[..3], ["bin/libvma.so", "lib/libvma.so", "lib64/libvma.so"].map(|place| Path::new("/opt/ringway").join(place)));
    }
}
