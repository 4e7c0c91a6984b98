//! The matrix of sentence by device: every promise of the documents, on every device that can be opened here.
//!
//!     cargo test -p ringway-conformance --test sentences -- --nocapture

#[path = "../programs/harness/cable.rs"]
#[allow(dead_code, reason = "each test has its own needs")]
mod cable;
mod connectx;
mod flawed;
mod mlx5;
mod rsockets;
mod rxe;
mod shm;
mod sim;
mod xdp;

use core::time::Duration;

use ringway_conformance::sentences::{Matrix, Verdict, seed003};
use ringway_host::Clock;
use ringway_sim::NicConfig;

use connectx::on_card;
use flawed::{Flaw, Flawed};
use mlx5::CardRig;
use rxe::RxeRig;
use shm::ShmRig;
use sim::SimRig;
use xdp::XdpRig;

/// The simulated NIC with everything, and with nothing.
const SIM: &str = "sim";
const BARE: &str = "sim, bare";
const SHM: &str = "shm";
const XDP: &str = "xdp";
/// The same, where the kernel cuts what is longer than the MTU.
const CUTTING: &str = "xdp, cutting";
const MLX5: &str = "mlx5";
const RXE: &str = "rxe";

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

/// Apart from the others, for it takes root; where CI is set that must be had.
#[test]
fn seed_003_on_an_interface() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "network namespaces take root");
        println!("left out: network namespaces take root");
        return;
    }
    let mut matrix = Matrix::default();
    matrix.add(XDP, &seed003::seed(), XdpRig::new);
    matrix.add(CUTTING, &seed003::seed(), XdpRig::cutting);
    println!("{matrix}");
    assert_eq!(matrix.failures(), Vec::<String>::new());
    insta::assert_snapshot!(matrix);
}

/// Apart from the others, for it takes a process of its own.
#[test]
fn seed_003_on_a_card() {
    on_card(concat!(module_path!(), "::seed_003_on_a_card"), || {
        let mut matrix = Matrix::default();
        matrix.add(MLX5, &seed003::seed(), CardRig::new);
        println!("{matrix}");
        assert_eq!(matrix.failures(), Vec::<String>::new());
        insta::assert_snapshot!(matrix);
    });
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn seed_003_on_soft_roce() {
    let mut matrix = Matrix::default();
    matrix.add(RXE, &seed003::seed(), RxeRig::new);
    println!("{matrix}");
    assert_eq!(matrix.failures(), Vec::<String>::new());
    insta::assert_snapshot!(matrix);
}

/// Waits until something holds.
fn eventually(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + patience;
    while !holds() {
        assert!(clock.now() < end, "not within {patience:?}: {what}");
        core::hint::spin_loop();
    }
}

/// The other columns have reasons; this one may only have what the contract itself lacks.
#[test]
fn the_full_nic_passes_whatever_there_is_a_case_for() {
    let mut matrix = Matrix::default();
    matrix.add(SIM, &seed003::seed(), || SimRig::new(NicConfig::full()));
    for (id, case, verdict) in matrix.verdicts(SIM) {
        let lacks = matches!(verdict, Verdict::Cannot(reason) if reason.starts_with("the contract") || reason.contains("not yet") || reason.contains("to be measured"));
        assert!(*verdict == Verdict::Pass || lacks, "{id} {case}: {verdict}");
    }
}

/// A case that no device could fail would be none.
#[test]
fn each_flaw_is_found_by_its_sentence() {
    for (flaw, nic, id) in Flaw::ALL {
        let mut matrix = Matrix::default();
        matrix.add(SIM, &seed003::seed(), || SimRig::wrapped(nic(), move |device| Flawed::new(device, flaw)));
        let failed: Vec<_> = matrix.verdicts(SIM).filter(|(.., verdict)| matches!(verdict, Verdict::Fail(_))).map(|(id, ..)| id).collect();
        println!("{flaw:?}: {failed:?}");
        assert!(failed.contains(&id), "{flaw:?} was to be found by {id}: {failed:?}");
    }
}
