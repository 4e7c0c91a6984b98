//! VMA_SPEC's presets: what each sets, as far as it differs from upstream's defaults (vma.md section 3).

use crate::table::Id;

/// A preset.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// What it is called in VMA_SPEC: its name, and its number if it has one.
    pub names: &'static [&'static str],
    /// What it sets, also of what is not heeded here.
    pub sets: &'static [(Id, &'static str)],
}

impl Spec {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

/// The preset of that name or number, in any case of letters.
pub fn find(name: &str) -> Option<&'static Spec> {
    let wanted = name.trim().to_ascii_lowercase();
    SPECS.iter().find(|spec| spec.names.contains(&wanted.as_str()))
}

/// Every preset.
pub const SPECS: &[Spec] = &[
    Spec { names: &["none", "0"], sets: &[] },
    Spec {
        names: &["ultra-latency", "10"],
        sets: &[
            (Id::TxSegsTcp, "512"),
            (Id::TxBufs, "512"),
            (Id::TxWre, "256"),
            (Id::TxWreBatching, "4"),
            (Id::RingDevMemTx, "16384"),
            (Id::RxBufs, "1024"),
            (Id::RxWre, "256"),
            (Id::RxWreBatching, "4"),
            (Id::RxPoll, "-1"),
            (Id::RxUdpPollOsRatio, "0"),
            (Id::RxPrefetchBefore, "256"),
            (Id::GroStreamsMax, "0"),
            (Id::SelectPoll, "-1"),
            (Id::SelectPollOsRatio, "0"),
            (Id::SelectSkipOs, "0"),
            (Id::ProgressInterval, "0"),
            (Id::CqKeepQpFull, "0"),
            (Id::TcpNodelay, "1"),
            (Id::InternalThreadAffinity, "0"),
            (Id::ThreadMode, "0"),
            (Id::MemAllocType, "2"),
        ],
    },
    Spec {
        names: &["latency", "15"],
        sets: &[
            (Id::TxWre, "256"),
            (Id::TxWreBatching, "4"),
            (Id::RingDevMemTx, "16384"),
            (Id::RxWre, "256"),
            (Id::RxWreBatching, "4"),
            (Id::RxPoll, "-1"),
            (Id::RxPrefetchBefore, "256"),
            (Id::GroStreamsMax, "0"),
            (Id::SelectPoll, "-1"),
            (Id::SelectPollOsRatio, "1"),
            (Id::SelectSkipOs, "1"),
            (Id::ProgressInterval, "100"),
            (Id::CqModeration, "0"),
            (Id::CqKeepQpFull, "0"),
            (Id::TcpNodelay, "1"),
            (Id::AvoidSysCalls, "1"),
            (Id::InternalThreadAffinity, "0"),
            (Id::ThreadMode, "0"),
            (Id::MemAllocType, "2"),
        ],
    },
    Spec {
        names: &["29west", "29"],
        sets: &[
            (Id::SpecParam1, "5000"),
            (Id::SpecParam2, "50"),
            (Id::RxPoll, "0"),
            (Id::RxUdpPollOsRatio, "100"),
            (Id::SelectPoll, "100000"),
            (Id::SelectPollOsRatio, "100"),
            (Id::SelectSkipOs, "50"),
        ],
    },
    Spec {
        names: &["wombat_fh", "554"],
        sets: &[
            (Id::SpecParam1, "5000"),
            (Id::SpecParam2, "50"),
            (Id::RxPoll, "0"),
            (Id::RxUdpPollOsRatio, "100"),
            (Id::SelectPoll, "0"),
            (Id::SelectSkipOs, "20"),
        ],
    },
    Spec { names: &["mcd", "623"], sets: &[(Id::RingAllocationTx, "31"), (Id::RingAllocationRx, "31")] },
    Spec {
        names: &["mcd-irq", "624"],
        sets: &[
            (Id::RingAllocationTx, "31"),
            (Id::RingAllocationRx, "31"),
            (Id::RxPoll, "0"),
            (Id::SelectPoll, "0"),
            (Id::CqModeration, "0"),
        ],
    },
    Spec { names: &["rti", "784"], sets: &[(Id::RxPoll, "-1")] },
    Spec {
        names: &["7750"],
        sets: &[
            (Id::Tracelevel, "warn"),
            (Id::StatsFdNum, "1024"),
            (Id::TxBufs, "8192"),
            (Id::RxBufs, "204800"),
            (Id::RxPoll, "-1"),
            (Id::SelectPoll, "-1"),
            (Id::SelectPollOsRatio, "0"),
            (Id::Tcp3tRules, "1"),
            (Id::AvoidSysCalls, "1"),
            (Id::BufferBatching, "0"),
            (Id::TcpCtlThread, "2"),
            (Id::InternalThreadAffinity, "0x3"),
        ],
    },
    Spec {
        names: &["multi_ring_latency"],
        sets: &[
            (Id::MemAllocType, "2"),
            (Id::SelectPoll, "-1"),
            (Id::RxPoll, "-1"),
            (Id::RingAllocationTx, "20"),
            (Id::RingAllocationRx, "20"),
            (Id::SelectPollOsRatio, "0"),
            (Id::SelectSkipOs, "0"),
            (Id::RxPollOnTxTcp, "1"),
            (Id::TriggerDummySend, "1"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_sets_what_its_parameter_takes_and_each_once() {
        for spec in SPECS {
            for (place, &(id, value)) in spec.sets.iter().enumerate() {
                assert!(id.row().kind.parse(value).is_some(), "{}: {}={value}", spec.name(), id.row().name);
                assert!(!spec.sets[..place].iter().any(|&(other, _)| other == id), "{}: {}", spec.name(), id.row().name);
                assert_ne!(id, Id::Spec, "a preset of presets");
            }
        }
    }

    #[test]
    fn presets_have_their_documented_names() {
        for (name, number) in [
            ("ultra-latency", Some("10")),
            ("latency", Some("15")),
            ("29west", Some("29")),
            ("wombat_fh", Some("554")),
            ("mcd", Some("623")),
            ("mcd-irq", Some("624")),
            ("rti", Some("784")),
            ("7750", None),
            ("multi_ring_latency", None),
            ("none", None),
        ] {
            assert_eq!(find(name).map(Spec::name), Some(name));
            assert_eq!(find(&name.to_uppercase()).map(Spec::name), Some(name));
            if let Some(number) = number {
                assert_eq!(find(number).map(Spec::name), Some(name));
            }
        }
        assert!(find("warp").is_none() && find("").is_none());
    }
}
