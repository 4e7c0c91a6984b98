//! The matrix of sentence by device: every promise of the documents, on every device that can be opened here.
//!
//!     cargo test -p ringway-conformance --test sentences -- --nocapture

mod shm;
mod sim;

use ringway_conformance::sentences::{Matrix, Verdict, seed003};
use ringway_sim::NicConfig;

use shm::ShmRig;
use sim::SimRig;

/// The simulated NIC with everything, and with nothing.
const SIM: &str = "sim";
const BARE: &str = "sim, bare";
const SHM: &str = "shm";

#[test]
fn seed_003() {
    let mut matrix = Matrix::default();
    matrix.add(SIM, &seed003::seed(), || SimRig::new(NicConfig::full()));
    matrix.add(BARE, &seed003::seed(), || SimRig::new(NicConfig::bare()));
    matrix.add(SHM, &seed003::seed(), ShmRig::new);
    println!("{matrix}");
    assert_eq!(matrix.failures(), Vec::<String>::new());
    insta::assert_snapshot!(matrix);
}

/// The other two columns have reasons; this one may only have what the contract itself lacks.
#[test]
fn the_full_nic_passes_whatever_there_is_a_case_for() {
    let mut matrix = Matrix::default();
    matrix.add(SIM, &seed003::seed(), || SimRig::new(NicConfig::full()));
    for (id, case, verdict) in matrix.verdicts(SIM) {
        let lacks = matches!(verdict, Verdict::Cannot(reason) if reason.starts_with("the contract") || reason.contains("not yet") || reason.contains("to be measured"));
        assert!(*verdict == Verdict::Pass || lacks, "{id} {case}: {verdict}");
    }
}
