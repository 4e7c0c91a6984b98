use super::*;

#[test]
fn a_report_survives_json() {
    let report = ProcessReport {
        pid: 7,
        program: "redis-server".into(),
        device: Some(DeviceReport { kind: "shm".into(), mac: "02:00:00:00:00:01".into(), peers: 2, mtu: 65_535 }),
        sockets: vec![SocketReport { fd: 6, protocol: "tcp".into(), state: "LISTEN".into(), offloaded: true, ..Default::default() }],
        without_owner: vec![SocketReport {
            fd: -1,
            tcp: Some(TcpReport { timer: Some(TimerReport { kind: TimerKind::TimeWait, left_us: 1 }), ..Default::default() }),
            ..Default::default()
        }],
        decisions: vec![Decision { what: "connect".into(), reason: "not-local".into(), count: 3, ..Default::default() }],
        ..Default::default()
    };
    let line = serde_json::to_string(&report).unwrap();
    assert!(!line.contains('\n'), "a report is one line of the statistics file");
    assert_eq!(serde_json::from_str::<ProcessReport>(&line).unwrap(), report);
}

#[test]
fn a_report_of_another_version_is_read() {
    let report: ProcessReport = serde_json::from_str(r#"{"pid":1,"device":null,"novelty":[1,2]}"#).unwrap();
    assert_eq!(report, ProcessReport { pid: 1, ..Default::default() });
    let timer: TimerReport = serde_json::from_str(r#"{"kind":"pacing","left_us":7}"#).unwrap();
    assert_eq!(timer, TimerReport { kind: TimerKind::Unknown, left_us: 7 });
}

#[test]
fn texts_lose_what_a_terminal_would_obey() {
    let mut report = ProcessReport { program: "\u{1b}]0;x\u{7}ok\u{202e}".into(), ..Default::default() };
    report.clean();
    assert_eq!(report.program, "]0;xok");
}
