//! Variables of the environment that are almost parameters: somebody set one, and it does nothing.

use crate::settings::aliases;
use crate::table::TABLE;

/// Variables that are read elsewhere than in [`TABLE`]: by `ringway`, to find the library.
const OTHERS: [&str; 2] = ["RINGWAY_LIBVMA", "RINGWAY_LIBRSPRELOAD"];

/// The beginnings of all names, and how many letters may be wrong there. (Nothing else in an environment is compared letter by letter.)
const PREFIXES: [(&str, usize); 2] = [("VMA", 1), ("RINGWAY", 2)];

/// One letter in so many may be wrong, but two at most.
const LETTERS_A_MISTAKE: usize = 5;
const MISTAKES_MAX: usize = 2;

/// A line about the variable `name`, if it is no parameter but looks like one.
pub(crate) fn warning(name: &str) -> Option<String> {
    let capitals = name.to_ascii_uppercase();
    let prefix = capitals.split('_').next().unwrap_or_default();
    let is_near = |&(right, wrong_max): &(&str, usize)| strsim::osa_distance(prefix, right) <= wrong_max;
    if !PREFIXES.iter().any(is_near) || known().any(|known| known == name) {
        return None;
    }
    let distances = known().map(|known| (strsim::osa_distance(&capitals, known), known));
    let (distance, meant) = distances.min_by_key(|&(distance, _)| distance)?;
    let wrong_max = (meant.len() / LETTERS_A_MISTAKE).min(MISTAKES_MAX);
    (distance <= wrong_max).then(|| format!("{name} is not a parameter, and does nothing: is {meant} meant?"))
}

fn known() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.name).chain(aliases().map(|(name, _)| name)).chain(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_told_with_the_right_one() {
        for (wrong, right) in [
            ("VMA_RX_POLLL", "VMA_RX_POLL"),
            ("VMA_RX_POL", "VMA_RX_POLL"),
            ("VMA_TRACELEVLE", "VMA_TRACELEVEL"),
            ("VMA_TRACE_LEVEL", "VMA_TRACELEVEL"),
            ("VAM_SPEC", "VMA_SPEC"),
            ("vma_rx_poll", "VMA_RX_POLL"),
            ("RINGWAY_DEVIC", "RINGWAY_DEVICE"),
            ("RINGWAI_DEVICE", "RINGWAY_DEVICE"),
            ("RINGWAY_LIBMVA", "RINGWAY_LIBVMA"),
        ] {
            let said = warning(wrong).unwrap_or_else(|| panic!("nothing about {wrong}"));
            assert!(said.starts_with(&format!("{wrong} ")) && said.contains(&format!(" {right} ")), "{said}");
        }
    }

    #[test]
    fn nothing_is_said_about_parameters_and_about_what_resembles_none() {
        for name in known() {
            assert_eq!(warning(name), None);
        }
        for name in ["PATH", "VMA_SOMETHING_ELSE_ALTOGETHER", "RINGWAY_CALLS_PROGRAMS", "VM_NAME", "VMA", "LC_ALL", ""] {
            assert_eq!(warning(name), None);
        }
    }
}
