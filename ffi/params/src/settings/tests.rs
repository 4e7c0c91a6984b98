use super::*;
use crate::kind::Kind;

fn with(set: &[(&str, &str)]) -> Settings {
    Settings::read(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

#[test]
fn nothing_set_means_the_defaults() {
    let settings = with(&[]);
    assert_eq!(settings.warnings(), [""; 0]);
    assert_eq!(settings.changed().count(), 0);
    assert_eq!(settings.number(Id::RxPoll), 100_000);
    assert_eq!(settings.level(), Level::Warn);
    assert_eq!(settings.path(Id::LogFile), None);
    assert_eq!(settings.cpus(Id::InternalThreadAffinity), None);
}

/// One value a kind that cannot be meant.
fn nonsense(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Bool | Kind::Number { .. } | Kind::ZeroOr { .. } | Kind::OneOf(_) | Kind::Level | Kind::Cpus => Some("banana"),
        Kind::Spec | Kind::Layout | Kind::Device => Some("banana"),
        Kind::Path | Kind::Text => None,
    }
}

#[test]
fn each_row_refuses_nonsense_with_one_warning_and_keeps_its_default() {
    for row in TABLE.iter().filter(|row| row.id != Id::Device) {
        let Some(wrong) = nonsense(row.kind) else { continue };
        let settings = with(&[(row.name, wrong)]);
        let [warning] = settings.warnings() else { panic!("{}: {:?}", row.name, settings.warnings()) };
        let says = |what: &str| warning.contains(what);
        assert!(says(row.name) && says(wrong) && says(&row.kind.allowed()), "{warning}");
        assert_eq!(settings.of(row.id), &default_of(row), "{}", row.name);
    }
}

#[test]
fn each_number_refuses_what_is_out_of_its_range() {
    for row in TABLE {
        let Kind::Number { least, greatest } = row.kind else { continue };
        for (value, fits) in [(least.checked_sub(1), false), (Some(least), true), (Some(greatest), true), (greatest.checked_add(1), false)]
        {
            let Some(value) = value else { continue };
            let settings = with(&[(row.name, &value.to_string())]);
            assert_eq!(settings.warnings().len(), usize::from(!fits), "{}={value}", row.name);
            assert_eq!(settings.number(row.id) == value, fits || row.default == value.to_string(), "{}={value}", row.name);
        }
    }
}

#[test]
fn a_name_of_several_refuses_nonsense_with_one_warning() {
    for (name, means) in aliases() {
        for wrong in ["banana", "-99"] {
            let settings = with(&[(name, wrong)]);
            assert!(matches!(settings.warnings(), [one] if one.contains(&format!("{name}={wrong} "))), "{name}: {:?}", settings.warnings());
            assert!(means.iter().all(|&id| settings.of(id) == &default_of(id.row())), "{name}");
        }
    }
}

#[test]
fn what_is_obsolete_is_one_warning_whatever_its_value() {
    for value in ["0", "1", "banana"] {
        assert_eq!(with(&[("VMA_HUGETBL", value)]).warnings().len(), 1, "{value}");
    }
}

#[test]
fn a_device_that_is_not_there_is_no_other_one() {
    for name in ["foo", "mlx5"] {
        let settings = with(&[("RINGWAY_DEVICE", name)]);
        assert!(
            matches!(settings.warnings(), [one] if one.contains(name) && one.contains("stay on the kernel")),
            "{:?}",
            settings.warnings()
        );
        assert_eq!((settings.text(Id::Device), settings.of(Id::Device).source), (name, Source::Environment));
    }
    let settings = with(&[("RINGWAY_DEVICE", "off")]);
    assert!(settings.warnings().is_empty() && settings.text(Id::Device) == "off");
}

#[test]
fn sizes_of_packets_that_no_stack_has_are_refused() {
    for (name, wrong, least) in [("VMA_MSS", "87", "88"), ("VMA_MTU", "127", "128"), ("VMA_RX_PREFETCH_BYTES_BEFORE_POLL", "31", "32")] {
        assert_eq!(with(&[(name, least)]).warnings(), [""; 0]);
        let settings = with(&[(name, wrong)]);
        assert_eq!((settings.warnings().len(), settings.changed().count()), (1, 0), "{name}");
    }
}

#[test]
fn a_release_is_shown_as_its_layouts() {
    let settings = with(&[("VMA_API_LAYOUT", "9.1")]);
    assert_eq!((settings.text(Id::ApiLayout), settings.api_layout()), ("9.2", Layout::B));
    let settings = with(&[("VMA_API_LAYOUT", "7")]);
    assert_eq!((settings.text(Id::ApiLayout), settings.api_layout(), settings.warnings().len()), ("9.8", Layout::D, 1));
}

#[test]
fn a_preset_sets_all_of_its_values() {
    for spec in spec::SPECS {
        for name in spec.names {
            let settings = with(&[("VMA_SPEC", name)]);
            assert_eq!(settings.warnings(), [""; 0]);
            assert_eq!(settings.text(Id::Spec), spec.name());
            for &(id, value) in spec.sets {
                assert_eq!(settings.of(id).source, Source::Spec(spec.name()), "{name}: {}", id.row().name);
                assert_eq!(Some(settings.number(id)), id.row().kind.parse(value).map(|(_, number)| number));
            }
        }
    }
}

#[test]
fn what_is_set_by_name_goes_before_the_preset() {
    let settings = with(&[("VMA_SPEC", "latency"), ("VMA_SELECT_POLL", "7")]);
    assert_eq!((settings.number(Id::RxPoll), settings.number(Id::SelectPoll)), (-1, 7));
    assert_eq!(settings.of(Id::SelectPoll).source, Source::Environment);
    assert!(settings.flag(Id::TcpNodelay));
}

#[test]
fn an_unknown_preset_is_none() {
    let settings = with(&[("VMA_SPEC", "warp")]);
    assert_eq!(settings.warnings().len(), 1);
    assert_eq!(settings.changed().count(), 0);
}

#[test]
fn an_empty_value_is_as_good_as_none_but_for_paths() {
    let settings = with(&[("VMA_RX_POLL", ""), ("VMA_STATS_SHMEM_DIR", "")]);
    assert!(!settings.is_set(Id::RxPoll) && settings.warnings().is_empty());
    assert_eq!(settings.text(Id::StatsShmemDir), "");
}

#[test]
fn old_names_are_understood_with_a_warning() {
    for name in ["VMA_RX_POLL_OS_RATIO", "VMA_RX_SKIP_OS"] {
        let settings = with(&[(name, "7")]);
        assert_eq!(settings.number(Id::RxUdpPollOsRatio), 7);
        assert_eq!(settings.of(Id::RxUdpPollOsRatio).source, Source::Alias(name));
        assert!(matches!(settings.warnings(), [one] if one.contains(name) && one.contains("VMA_RX_UDP_POLL_OS_RATIO")));
        let own = with(&[(name, "7"), ("VMA_RX_UDP_POLL_OS_RATIO", "9")]);
        assert_eq!(own.number(Id::RxUdpPollOsRatio), 9, "its own name goes before");
    }
    let settings = with(&[("VMA_RING_ALLOCATION", "20")]);
    assert_eq!((settings.number(Id::RingAllocationTx), settings.number(Id::RingAllocationRx)), (20, 20));
    assert!(settings.warnings().is_empty());
    assert_eq!(with(&[("VMA_HUGETBL", "1")]).warnings().len(), 1);
}

#[test]
fn some_parameters_follow_from_others() {
    let settings = with(&[("VMA_SELECT_POLL_OS_FORCE", "1"), ("VMA_SELECT_POLL_OS_RATIO", "50")]);
    assert_eq!((settings.number(Id::SelectPollOsRatio), settings.number(Id::SelectSkipOs)), (1, 1));
    let settings = with(&[("VMA_SELECT_POLL_OS_RATIO", "3")]);
    assert_eq!(settings.number(Id::SelectSkipOs), 3);
    let settings = with(&[("VMA_SELECT_POLL_OS_RATIO", "3"), ("VMA_SELECT_SKIP_OS", "2")]);
    assert_eq!(settings.number(Id::SelectSkipOs), 2);
    assert_eq!(with(&[("VMA_TRACELEVEL", "DEBUG")]).number(Id::LogDetails), 2);
    assert_eq!(with(&[("VMA_TRACELEVEL", "all"), ("VMA_LOG_DETAILS", "0")]).number(Id::LogDetails), 0);
    assert_eq!(with(&[("VMA_TRACELEVEL", "details")]).number(Id::LogDetails), 0);
}

#[test]
fn a_path_has_the_process_id_once() {
    let settings = with(&[("VMA_LOG_FILE", "/tmp/%d.%d")]);
    assert_eq!(settings.path(Id::LogFile), Some(format!("/tmp/{}.%d", std::process::id())));
}

proptest::proptest! {
    #[test]
    fn any_environment_comes_to_something(values in proptest::collection::vec(".*", TABLE.len())) {
        let settings = Settings::read(|name| Id::from_name(name).map(|id| values[id as usize].clone()));
        assert_eq!(settings.iter().count(), TABLE.len());
    }
}

#[test]
fn socketxtreme_changes_defaults_and_nothing_that_is_set() {
    let settings = with(&[("VMA_SOCKETXTREME", "1")]);
    assert_eq!((settings.number(Id::RxWre), settings.number(Id::GroStreamsMax)), (1024, 0));
    assert_eq!(settings.of(Id::RxWre).source, Source::Implied("VMA_SOCKETXTREME"));
    let settings = with(&[("VMA_SOCKETXTREME", "1"), ("VMA_RX_WRE", "7")]);
    assert_eq!((settings.number(Id::RxWre), settings.number(Id::GroStreamsMax)), (7, 0));
    assert_eq!(with(&[("VMA_SOCKETXTREME", "0")]).number(Id::RxWre), 16000);
}
