use super::*;

fn with(set: &[(&str, &str)]) -> Result<Params, String> {
    parse(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

#[test]
fn nothing_set_means_the_documented_defaults() {
    let params = with(&[]).expect("no parameter, no mistake");
    assert_eq!(params.rx_poll_us, None);
    assert_eq!(params.rx_udp_poll_os_ratio, 100);
    assert_eq!(params.select_poll_os_ratio, 10);
    assert_eq!(params.progress_engine_interval_ms, 10);
    assert_eq!(params.cq_poll_batch_max, 16);
    assert!(!params.tcp_nodelay);
}

#[test]
fn a_specification_sets_and_an_explicit_value_overrides_it() {
    let params = with(&[("VMA_SPEC", "latency"), ("VMA_SELECT_POLL", "7")]).expect("both are good");
    assert_eq!(params.rx_poll_us, Some(-1));
    assert_eq!(params.select_poll_us, Some(7));
    assert!(params.tcp_nodelay);
}

#[test]
fn what_is_wrong_is_named() {
    for (name, value) in
        [("VMA_RX_POLL", "fast"), ("VMA_RX_POLL", "-2"), ("VMA_CQ_POLL_BATCH_MAX", "129"), ("VMA_SPEC", "warp"), ("VMA_MTU", "1e3")]
    {
        let complaint = with(&[(name, value)]).expect_err("it is wrong");
        assert!(complaint.contains(name) && complaint.contains(value), "{complaint}");
    }
}

#[test]
fn an_empty_value_is_as_good_as_none() {
    assert_eq!(with(&[("VMA_RX_POLL", "")]).expect("empty is unset").rx_poll_us, None);
}

#[test]
fn every_number_that_a_specification_sets_is_known_and_in_range() {
    for spec in SPECS {
        for &(name, value) in spec.sets {
            let &(_, least, greatest) = NUMBERS.iter().find(|(known, ..)| *known == name).expect(name);
            assert!((least..=greatest).contains(&value), "{name}");
        }
    }
}

#[test]
fn prefork_servers_are_known_by_the_beginning_of_their_names() {
    for program in ["php-fpm8.2", "sshd-session", "postgres", "apache2"] {
        assert!(is_prefork_server(program), "{program}");
    }
    for program in ["redis-server", "ssh", "php", "", "my-nginx"] {
        assert!(!is_prefork_server(program), "{program}");
    }
}
