use super::*;

#[test]
fn a_scenario_reads_back() {
    for text in ["42/loss+corruption/3", "7/none/0", "18446744073709551615/loss+duplication+reordering+corruption/10"] {
        assert_eq!(text.parse::<Scenario>().unwrap().to_string(), text);
    }
    assert_eq!("5".parse(), Ok(Scenario::of_seed(5)));
    assert_eq!("5/all".parse::<Scenario>().unwrap().faults, FaultSet::all());
    assert_eq!("x".parse::<Scenario>(), Err(ParseError::Seed));
    assert_eq!("1/fire".parse::<Scenario>(), Err(UnknownFault("fire".to_owned()).into()));
    assert_eq!("1/all/11".parse::<Scenario>(), Err(ParseError::Scale));
}

/// Taking a fault away must leave everything else as it was, or minimising a failure would lose it.
#[test]
fn a_fault_less_changes_nothing_else() {
    for seed in 0..50 {
        let options = |faults| {
            let mut options = Scenario { seed, faults, scale: 3 }.options();
            for host in &mut options.hosts {
                host.link.faults = host.link.faults.only(FaultSet::LOSS);
            }
            options.to_string()
        };
        assert_eq!(options(FaultSet::all()), options(FaultSet::LOSS));
    }
}

#[test]
fn seeds_differ_in_everything() {
    let drawn: Vec<_> = (0..200).map(|seed| Scenario::of_seed(seed).options()).collect();
    for kind in ["upload", "download", "both ways", "request", "half-close", "client aborts", "server aborts"] {
        assert!(drawn.iter().any(|o| o.talks.iter().any(|t| t.kind == kind)), "no {kind} in 200 seeds");
    }
    assert!(drawn.iter().any(|o| o.introduce) && drawn.iter().any(|o| !o.introduce));
    assert!(drawn.iter().any(|o| o.pings.is_empty()) && drawn.iter().any(|o| !o.pings.is_empty()));
    assert!((2..=4).all(|n| drawn.iter().any(|o| o.hosts.len() == n)));
}
