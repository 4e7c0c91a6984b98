use super::*;

#[test]
fn levels_have_their_documented_names() {
    for (name, level) in [
        ("none", Level::None),
        ("panic", Level::Panic),
        ("0", Level::Panic),
        ("1", Level::Error),
        ("WARNING", Level::Warn),
        ("information", Level::Info),
        ("details", Level::Details),
        ("4", Level::Debug),
        ("Func", Level::Fine),
        ("func+", Level::Finer),
        ("funcall", Level::Finer),
        ("func_all", Level::Finer),
        ("func-all", Level::Finer),
        ("6", Level::Finer),
        ("all", Level::All),
    ] {
        assert_eq!(Level::from_name(name), Some(level), "{name}");
        assert_eq!(Level::from_name(level.name()), Some(level));
    }
    assert_eq!(Level::from_name("no such level"), None);
    assert!(Level::None < Level::Panic && Level::Details < Level::Debug && Level::Finer < Level::All);
}

#[test]
fn a_flag_is_any_number() {
    for (text, value) in [("0", 0), ("1", 1), ("-7", 1), (" 2 ", 1), ("0x0", 0)] {
        assert_eq!(Kind::Bool.parse(text).map(|(_, number)| number), Some(value), "{text}");
    }
    assert_eq!(Kind::Bool.parse("yes"), None, "for atoi that is zero: the contrary of what was meant");
}

#[test]
fn numbers_keep_to_their_range() {
    let kind = Kind::Number { least: -1, greatest: 100 };
    assert_eq!(kind.parse("0x40"), Some(("64".to_owned(), 64)));
    for text in ["-2", "101", "1e3", "", "0x-1", "0x+1", "99999999999999999999"] {
        assert_eq!(kind.parse(text), None, "{text}");
    }
    assert_eq!(kind.allowed(), "a number from -1 to 100");
}

#[test]
fn zero_may_stand_apart_from_a_range() {
    let kind = Kind::ZeroOr { least: 32, greatest: 2044 };
    for (text, fits) in [("0", true), ("1", false), ("31", false), ("32", true), ("2044", true), ("2045", false), ("-32", false)] {
        assert_eq!(kind.parse(text).is_some(), fits, "{text}");
    }
    assert_eq!(kind.allowed(), "0, or a number from 32 to 2044");
}

#[test]
fn a_layout_is_shown_by_its_own_name() {
    assert_eq!(Kind::Layout.parse(" 9.2.2 "), Some(("9.2".to_owned(), 0)));
    assert_eq!(Kind::Layout.parse("7"), None);
}

#[test]
fn devices_are_those_of_this_build() {
    assert_eq!(Kind::Device.parse(" shm"), Some(("shm".to_owned(), 0)));
    assert_eq!(Kind::Device.parse("shm, xdp:eth0,xdp:b1 "), Some(("shm,xdp:eth0,xdp:b1".to_owned(), 0)));
    let named = |name, queues| Named { driver: Driver::Xdp, name, queues };
    assert_eq!(interfaces("shm,xdp:eth0,xdp:b1"), Some(vec![named("eth0", None), named("b1", None)]));
    assert_eq!(interfaces("shm,xdp:eth0/2,xdp:b1/0-3"), Some(vec![named("eth0", Some((2, 2))), named("b1", Some((0, 3)))]));
    assert_eq!(Kind::Device.parse("shm, xdp:eth0/02-2,xdp:b1/0-3"), Some(("shm,xdp:eth0/2,xdp:b1/0-3".to_owned(), 0)));
    for queues in ["", "-", "1-", "-1", "2-1", "+1", "a", "0-1-2", "0/1", "9999999999"] {
        assert_eq!(interfaces(&format!("shm,xdp:eth0/{queues}")), None, "{queues}");
    }
    for other in [
        "mlx5",
        "foo",
        "SHM",
        "xdp",
        "shm,xdp",
        "shm,xdp:",
        "shm,xdp:a/b",
        "shm,xdp:a b",
        "shm,xdp:0123456789abcdef",
        "shm,",
        "shm,shm",
        "mlx5:",
    ] {
        assert_eq!(Kind::Device.parse(other), None, "{other}");
    }
    let card = Named { driver: Driver::Mlx5, name: "rocep129s0f0v1n17", queues: None };
    assert_eq!(interfaces("mlx5:rocep129s0f0v1n17, xdp:b1"), Some(vec![card, named("b1", None)]));
    assert_eq!(Kind::Device.parse("mlx5:mlx5_0"), Some(("shm,mlx5:mlx5_0".to_owned(), 0)));
    assert_eq!(Kind::Device.parse("xdp:eth0"), Some(("shm,xdp:eth0".to_owned(), 0)));
    assert_eq!(Kind::Device.parse("rxe:rxe0"), Some(("shm,rxe:rxe0".to_owned(), 0)));
    assert_eq!(["mlx5:mlx5_0/1", "rxe:rxe0/1", "rxe:"].map(interfaces), [None, None, None]);
    assert!(interfaces("shm").is_none() && interfaces("auto").is_none());
}

#[test]
fn cpus_are_a_mask_or_a_list() {
    assert_eq!(cpus("0x3"), Some(vec![0, 1]));
    assert_eq!(cpus("0x10000000000000001"), Some(vec![0, 64]));
    assert_eq!(cpus("0"), Some(vec![0]));
    assert_eq!(cpus("4,0-2, 1"), Some(vec![0, 1, 2, 4]));
    for wrong in ["", "0x0", "0xg", "1-", "-2", "a", "2-1", "1,,2", "999999", "0-99999999999"] {
        assert_eq!(cpus(wrong), None, "{wrong}");
    }
    assert_eq!(Kind::Cpus.parse("-1"), Some(("-1".to_owned(), -1)));
}

proptest::proptest! {
    #[test]
    fn no_text_is_too_much(text in ".*") {
        let (number, zero_or) = (Kind::Number { least: 0, greatest: 9 }, Kind::ZeroOr { least: 5, greatest: 9 });
        let words = [Kind::Level, Kind::Cpus, Kind::Path, Kind::Spec, Kind::Layout, Kind::Device];
        let kinds = [Kind::Bool, number, zero_or, Kind::OneOf(&[(1, "one")])].into_iter().chain(words);
        for kind in kinds {
            let _ = kind.parse(&text);
        }
    }
}

#[test]
fn rsockets_have_one_device() {
    let of = |text| rsocket_device(text).map(|named| named.to_string());
    for text in ["rxe:rxe0", "mlx5:mlx5_0", "xdp:eth0", "xdp:eth0/1"] {
        assert_eq!(of(text).as_deref(), Some(text));
    }
    assert_eq!(of("shm, rxe:mlx5_0").as_deref(), Some("rxe:mlx5_0"));
    assert!(["auto", "shm", "rxe", "rxe:", "rxe:a/0", "rxe:a,rxe:b", "shm,xdp:a,mlx5:b"].into_iter().all(|text| of(text).is_none()));
}
