//! Scenarios that failed once, at their smallest. What was mended for each has a test of its own where it was mended; here the whole world is played
//! again, as long as the seed still means what it meant.

use ringway_sim::scenario::{Scenario, Stage};

const FAILED_ONCE: &[&str] = &[
    "60001070/loss+one_way+registration+forge/9/request+churn+abort+overflow+udp+epoll+slow+handover+meeting",
    "60035803/none/4/bulk+idle+half-close+slow+handover+stranger+shared",
    "60037044/registration/0/slow/ipv6",
    "60049182/duplication+nic_reset/3/half-close+shared",
    "60112438/none/5/slow+handover+shared",
    "60217215/crash+forge/10/half-close",
    "60226984/duplication+burst_loss/0/idle+slow+shared+probes",
    "60291753/registration/0/churn+half-close",
    "60354907/duplication/0/abort+multicast+stranger+shared+probes",
    "60477960/registration/0/request",
];

#[test]
fn what_failed_once_passes() {
    for text in FAILED_ONCE {
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        Stage::set(&scenario).play();
    }
}
