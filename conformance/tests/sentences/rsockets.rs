//! Seed 004's cases on devices: rsockets over adapters in software, whose packets are the device's frames.

use ringway_sim::NicConfig;

use crate::sim::SimRig;

macro_rules! cases {
    ($($run:ident { $(fn $case:ident();)+ })+) => {
        $($(
            #[test]
            fn $case() {
                let case = ringway_conformance::sentences::rsockets::$case;
                if let Err(error) = case(&mut $run()) {
                    panic!("{error:#}");
                }
            }
        )+)+

        /// All of them, by name, on rigs of one kind.
        fn all<R: ringway_conformance::sentences::Rig>(rig: impl Fn() -> R) {
            $($(
                if let Err(error) = ringway_conformance::sentences::rsockets::$case(&mut rig()) {
                    panic!("{}: {error:#}", stringify!($case));
                }
            )+)+
        }
    };
}

fn full() -> SimRig {
    SimRig::new(NicConfig::full())
}

cases! {
    full {
        fn a_stream_of_bytes_goes_both_ways();
        fn bytes_are_looked_at_and_nothing_blocks();
        fn each_direction_ends_by_itself();
        fn a_failure_is_told_once();
        fn options_are_what_they_were_set_to();
        fn nothing_is_mapped_that_the_peer_has_set_no_room_for();
        fn direct_writes_come_before_what_is_sent_after_them();
        fn what_is_unmapped_is_not_written();
    }
}

/// With nothing that a device need not have.
#[test]
fn all_on_the_bare_nic() {
    all(|| SimRig::new(NicConfig::bare()));
}

#[test]
fn all_on_shared_memory() {
    all(crate::shm::ShmRig::new);
}

/// Takes root; where CI is set that must be had.
#[test]
fn all_on_an_interface() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "network namespaces take root");
        println!("left out: network namespaces take root");
        return;
    }
    all(crate::xdp::XdpRig::new);
}

/// In a process of its own.
#[test]
fn all_on_a_card() {
    crate::connectx::on_card(concat!(module_path!(), "::all_on_a_card"), || all(crate::mlx5::CardRig::new));
}

#[test]
#[ignore = "in a guest: cargo xtask test --only rxe"]
fn all_on_soft_roce() {
    all(crate::rxe::RxeRig::new);
}
