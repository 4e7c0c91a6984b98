use super::*;

#[test]
fn a_scenario_reads_back() {
    for text in ["42/loss+corruption/3/bulk+udp", "7/none/0/none", "18446744073709551615/loss+duplication+reordering/10/half-close"] {
        assert_eq!(text.parse::<Scenario>().unwrap().to_string(), text);
    }
    assert_eq!("5".parse(), Ok(Scenario::of_seed(5)));
    assert_eq!("5/all".parse::<Scenario>().unwrap().faults, FaultSet::all());
    // What lines of replay said before workloads had names.
    let before: Scenario = "42/loss+corruption/3".parse().unwrap();
    assert_eq!(before, Scenario { faults: FaultSet::LOSS | FaultSet::CORRUPTION, scale: 3, ..Scenario::of_seed(42) });
    assert_eq!("x".parse::<Scenario>(), Err(ParseError::Seed));
    assert_eq!("1/fire".parse::<Scenario>(), Err(UnknownFault("fire".to_owned()).into()));
    assert_eq!("1/all/11".parse::<Scenario>(), Err(ParseError::Scale));
    assert_eq!("1/all/1/war".parse::<Scenario>(), Err(UnknownWorkload("war".to_owned()).into()));
}

/// Taking a fault away must leave everything else as it was, or minimising a failure would lose it.
#[test]
fn a_fault_less_changes_nothing_else() {
    for seed in 0..50 {
        let options = |faults| {
            let mut options = Scenario { faults, scale: 3, ..Scenario::of_seed(seed) }.options();
            for host in &mut options.hosts {
                host.link.faults = host.link.faults.only(FaultSet::LOSS);
                host.faults = host.faults.only(FaultSet::LOSS);
                host.nic.faults = host.nic.faults.only(FaultSet::LOSS);
            }
            options.to_string()
        };
        assert_eq!(options(FaultSet::all()), options(FaultSet::LOSS));
    }
}

#[test]
fn a_workload_less_changes_nothing_else() {
    for seed in 0..50 {
        let options = |workloads| Scenario { scale: 3, workloads, ..Scenario::of_seed(seed) }.options();
        let all = options(WorkloadSet::all()).to_string();
        for workload in WorkloadSet::all().iter() {
            let less = options(WorkloadSet::all() - workload).to_string();
            let alone = options(workload).workloads[0].to_string();
            assert!(all.contains(&alone), "seed {seed}: {workload} alone is another");
            assert_eq!(all.replacen(&alone, "", 1), less, "seed {seed}: without {workload} others change");
        }
    }
}

#[test]
fn a_swarm_differs_in_everything() {
    let swarm: Vec<_> = (0..400).map(Scenario::of_seed).collect();
    for workload in WorkloadSet::all().iter() {
        let with = swarm.iter().filter(|s| s.workloads.contains(workload)).count();
        assert!((40..280).contains(&with), "{workload} is in {with} of 400 seeds");
    }
    for class in FaultSet::all().iter() {
        let with = swarm.iter().filter(|s| s.faults.contains(class)).count();
        assert!((40..280).contains(&with), "{class} is in {with} of 400 seeds");
    }
    assert!(swarm.iter().all(|s| !s.workloads.is_empty() && s.workloads != WorkloadSet::all()));
    let calm = (0..4000).map(Scenario::of_seed).filter(|s| s.faults.is_empty()).count();
    assert!((450..650).contains(&calm), "{calm} of 4000 seeds are calm");
    let drawn: Vec<_> = swarm.iter().map(Scenario::options).collect();
    assert!([2, 3, 4, 8].iter().all(|&n| drawn.iter().any(|o| o.hosts.len() == n)));
    assert!(drawn.iter().filter(|o| o.hosts.len() <= 4).count() > 240 && drawn.iter().all(|o| (2..=16).contains(&o.hosts.len())));
    assert!(drawn.iter().any(|o| o.introduce) && drawn.iter().any(|o| !o.introduce));
    assert!(drawn.iter().any(|o| o.vlan.is_some()) && drawn.iter().any(|o| o.vlan.is_none()));
    for kind in [
        "upload",
        "download",
        "both ways",
        "request",
        "half-close",
        "client aborts",
        "server aborts",
        "slow",
        "meet at",
        "take their connection along",
    ] {
        assert!(drawn.iter().any(|o| o.to_string().contains(kind)), "no {kind} in 400 seeds");
    }
}

#[test]
fn what_is_simpler_is_one_step_away_and_comes_to_an_end() {
    let whole: Scenario = "9/loss+corruption/6/bulk+udp".parse().unwrap();
    let texts: Vec<_> = whole.simpler().iter().map(ToString::to_string).collect();
    let expected = [
        "9/corruption/6/bulk+udp",
        "9/loss/6/bulk+udp",
        "9/loss+corruption/6/udp",
        "9/loss+corruption/6/bulk",
        "9/loss+corruption/0/bulk+udp",
        "9/loss+corruption/3/bulk+udp",
        "9/loss+corruption/5/bulk+udp",
    ];
    assert_eq!(texts, expected);
    assert_eq!("9/none/0/bulk".parse::<Scenario>().unwrap().simpler(), []);
}
