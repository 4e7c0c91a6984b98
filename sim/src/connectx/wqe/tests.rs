use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const QPN: u32 = 0x1234;
const FRAME_MAX: u32 = 9216;
const TSO_MAX: u32 = 1 << 18;

fn rules(transport: Transport) -> SendRules {
    SendRules {
        transport,
        qpn: QPN,
        inline_min: 18,
        ds_max: c::DS_MAX,
        frame_max: FRAME_MAX,
        tso_max: TSO_MAX,
        mpw_max: 5,
        enhanced_mpw: true,
    }
}

fn control(opcode: u8) -> Control {
    let fm_ce_se = c::CTRL_CQ_UPDATE;
    Control { opmod: 0, index: 7, opcode, qpn: QPN, ds: 0, signature: 0, stream: [0; 2], fm_ce_se, imm: 0x0a0b_0c0d }
}

fn memory(byte_count: u32) -> DataSegment {
    DataSegment { byte_count, lkey: 0x500, addr: 0x1000 }
}

/// Writes `wqe`, lets `spoil` at its bytes, and reads it.
fn spoilt(wqe: SendWqe, rules: &SendRules, spoil: impl FnOnce(&mut Vec<u8>)) -> Result<SendWqe, Violation> {
    let mut bytes = wqe.encode();
    spoil(&mut bytes);
    SendWqe::parse(&bytes, 7, rules)
}

fn frame(header: usize, payload: u32) -> SendWqe {
    let ethernet = Ethernet::with_headers(&vec![0x55; header]);
    SendWqe { control: control(c::OPCODE_SEND), body: Body::Frame(ethernet, vec![Piece::Memory(memory(payload))]) }
}

#[test]
fn a_frame_as_libmlx5_writes_it() {
    // Laid out by hand from mlx5dv.h: control, Ethernet with 18 bytes in line, one data segment.
    let mut bytes = vec![0x00, 0x00, 0x07, 0x0a, 0x00, 0x12, 0x34, 0x04, 0, 0, 0, 0x08, 0, 0, 0, 0];
    bytes.extend([0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x12]);
    bytes.extend(1..=18);
    bytes.extend([0, 0, 0, 100, 0, 0, 0x05, 0x00, 0, 0, 0, 0, 0, 0, 0x10, 0x00]);
    let wqe = SendWqe::parse(&bytes, 7, &rules(Transport::Raw)).unwrap();
    assert_eq!(wqe.blocks(), 1);
    assert!(wqe.control.wants_completion());
    let Body::Frame(ethernet, pieces) = &wqe.body else { panic!("{wqe:?}") };
    assert_eq!(ethernet.headers(), (1..=18).collect::<Vec<u8>>());
    assert_eq!(ethernet.cs_flags, c::ETH_L3_CSUM | c::ETH_L4_CSUM);
    assert_eq!(pieces[..], [Piece::Memory(memory(100))]);
    assert_eq!(wqe.encode(), bytes);
}

#[test]
fn what_the_control_segment_must_say() {
    let rules = rules(Transport::Raw);
    let spoil = |at: usize, value: u8| spoilt(frame(18, 100), &rules, |bytes| bytes[at] = value);
    assert_eq!(spoil(2, 8), Err(Violation::WrongIndex { found: 8, expected: 7 }));
    assert_eq!(spoil(6, 0x35), Err(Violation::WrongQueue { found: 0x1235, expected: QPN }));
    assert_eq!(spoil(7, 0), Err(Violation::BadDs { ds: 0, min: 1, max: 63 }));
    assert_eq!(spoil(7, 1), Err(Violation::BadDs { ds: 1, min: 2, max: 63 }));
    assert_eq!(spoil(7, 5), Err(Violation::BadDs { ds: 5, min: 1, max: 63 }), "the caller has no more bytes");
    assert_eq!(spoil(3, c::OPCODE_RDMA_READ), Err(Violation::OpcodeNotAllowed { opcode: c::OPCODE_RDMA_READ, opmod: 0 }));
    assert_eq!(spoil(3, 0x25), Err(Violation::OpcodeNotModelled { opcode: 0x25 }));
    assert_eq!(spoil(0, 1), Err(Violation::OpcodeNotAllowed { opcode: c::OPCODE_SEND, opmod: 1 }));
    let narrow = SendRules { ds_max: 3, ..rules };
    assert_eq!(spoilt(frame(18, 100), &narrow, |_| ()), Err(Violation::BadDs { ds: 4, min: 1, max: 3 }));
}

#[test]
fn which_opcodes_a_queue_pair_has() {
    let all = [
        c::OPCODE_NOP,
        c::OPCODE_SEND,
        c::OPCODE_SEND_IMM,
        c::OPCODE_SEND_INVAL,
        c::OPCODE_RDMA_WRITE,
        c::OPCODE_RDMA_WRITE_IMM,
        c::OPCODE_RDMA_READ,
        c::OPCODE_ATOMIC_CS,
        c::OPCODE_ATOMIC_FA,
        c::OPCODE_TSO,
        c::OPCODE_ENHANCED_MPSW,
    ];
    let has = |transport| {
        let allowed = |opcode: &u8| {
            let bytes = Control { ds: 1, ..control(*opcode) }.encode();
            !matches!(SendWqe::parse(&bytes, 7, &rules(transport)), Err(Violation::OpcodeNotAllowed { .. }))
        };
        all.into_iter().filter(allowed).collect::<Vec<_>>()
    };
    assert_eq!(has(Transport::Rc), all[..9]);
    assert_eq!(has(Transport::Uc), [c::OPCODE_NOP, c::OPCODE_SEND, c::OPCODE_SEND_IMM, c::OPCODE_RDMA_WRITE, c::OPCODE_RDMA_WRITE_IMM]);
    assert_eq!(has(Transport::Ud), all[..3]);
    assert_eq!(has(Transport::Raw), [c::OPCODE_NOP, c::OPCODE_SEND, c::OPCODE_TSO, c::OPCODE_ENHANCED_MPSW]);
}

#[test]
fn headers_in_line() {
    let raw = rules(Transport::Raw);
    assert_eq!(spoilt(frame(17, 100), &raw, |_| ()), Err(Violation::InlineHeaderShort { have: 17, need: 18 }));
    assert!(spoilt(frame(0, 100), &SendRules { inline_min: 0, ..raw }, |_| ()).is_ok());
    // The segment ends at byte 64, so that 14 + 35 bytes of it are the entry's last.
    assert!(spoilt(frame(18, 100), &raw, |bytes| bytes[29] = 34).is_ok(), "the data segment is taken for headers");
    assert_eq!(spoilt(frame(18, 100), &raw, |bytes| bytes[29] = 35), Err(Violation::InlineHeaderLong { have: 35 }));
    let ethernet = Ethernet { header: HeaderField::InsertVlan(0x0123), ..Ethernet::with_headers(&[]) };
    let tagged = SendWqe { control: control(c::OPCODE_SEND), body: Body::Frame(ethernet, vec![Piece::Memory(memory(60))]) };
    assert_eq!(spoilt(tagged.clone(), &raw, |_| ()), Err(Violation::InlineHeaderShort { have: 0, need: 18 }));
    let read = spoilt(tagged.clone(), &SendRules { inline_min: 0, ..raw }, |_| ()).unwrap();
    assert_eq!(read.body, tagged.body);
}

#[test]
fn payload_in_line() {
    let raw = rules(Transport::Raw);
    let body = Body::Frame(Ethernet::with_headers(&[0; 18]), vec![Piece::Inline(vec![9; 30])]);
    let wqe = SendWqe { control: control(c::OPCODE_SEND), body };
    assert_eq!(spoilt(wqe.clone(), &raw, |_| ()).unwrap().body, wqe.body);
    assert!(spoilt(wqe.clone(), &raw, |bytes| bytes[51] = 44).is_ok(), "padding is payload");
    assert_eq!(spoilt(wqe, &raw, |bytes| bytes[51] = 45), Err(Violation::InlineDataLong { have: 45, room: 44 }));
    let body = Body::Read(Remote { addr: 1, rkey: 2 }, vec![memory(8)]);
    let read = SendWqe { control: control(c::OPCODE_RDMA_READ), body };
    let inlined = spoilt(read, &rules(Transport::Rc), |bytes| bytes[32..36].copy_from_slice(&[0x80, 0, 0, 8]));
    assert_eq!(inlined, Err(Violation::InlineNotAllowed { opcode: c::OPCODE_RDMA_READ }));
}

#[test]
fn frames_and_their_segments() {
    let raw = SendRules { inline_min: 0, ..rules(Transport::Raw) };
    assert_eq!(spoilt(frame(0, 13), &raw, |_| ()), Err(Violation::FrameShort { bytes: 13 }));
    assert_eq!(spoilt(frame(18, 100), &raw, |bytes| bytes[23] = 9), Err(Violation::MssWithoutTso { mss: 9 }));
    assert!(spoilt(frame(18, 9198), &raw, |_| ()).is_ok());
    assert_eq!(spoilt(frame(18, 9199), &raw, |_| ()), Err(Violation::FrameLong { bytes: 9217, max: FRAME_MAX }));
    let large = |mss, header: &[u8], pieces| {
        let ethernet = Ethernet { mss, ..Ethernet::with_headers(header) };
        spoilt(SendWqe { control: control(c::OPCODE_TSO), body: Body::Segmented(ethernet, pieces) }, &raw, |_| ())
    };
    assert!(large(1000, &[0; 54], vec![Piece::Memory(memory(3500))]).is_ok());
    assert_eq!(large(0, &[0; 54], vec![Piece::Memory(memory(35))]), Err(Violation::BadTso { mss: 0, header: 54, payload: 35 }));
    assert_eq!(large(9, &[0; 13], vec![Piece::Memory(memory(35))]), Err(Violation::BadTso { mss: 9, header: 13, payload: 35 }));
    let much = vec![Piece::Memory(memory(TSO_MAX + 1))];
    assert_eq!(large(9, &[0; 54], much), Err(Violation::FrameLong { bytes: (1 << 18) + 1, max: TSO_MAX }));
    assert_eq!(large(9163, &[0; 54], vec![Piece::Memory(memory(1))]), Err(Violation::FrameLong { bytes: 9217, max: FRAME_MAX }));
    assert_eq!(large(9, &[0; 54], vec![]), Err(Violation::BadTso { mss: 9, header: 54, payload: 0 }));
}

#[test]
fn several_frames_in_one_entry() {
    let raw = rules(Transport::Raw);
    let legacy = |frames: Vec<Piece>| {
        let ethernet = Ethernet { mss: 60, ..Ethernet::with_headers(&[]) };
        let control = Control { opmod: c::OPMOD_MPW, ..control(c::OPCODE_TSO) };
        spoilt(SendWqe { control, body: Body::Frames(ethernet, frames) }, &raw, |_| ())
    };
    let sixty = || Piece::Memory(memory(60));
    assert!(legacy(vec![sixty(); 5]).is_ok());
    assert_eq!(legacy(vec![sixty(); 6]), Err(Violation::BadMultiPacket { frame: 5, bytes: 60, mss: 60 }));
    let uneven = vec![sixty(), Piece::Memory(memory(61))];
    assert_eq!(legacy(uneven.clone()), Err(Violation::BadMultiPacket { frame: 1, bytes: 61, mss: 60 }));
    let enhanced = |frames: Vec<Piece>, rules: &SendRules| {
        let body = Body::Frames(Ethernet::with_headers(&[]), frames);
        spoilt(SendWqe { control: control(c::OPCODE_ENHANCED_MPSW), body }, rules, |_| ())
    };
    assert!(enhanced(uneven, &raw).is_ok());
    assert!(enhanced(vec![Piece::Inline(vec![1; 60]), sixty()], &raw).is_ok());
    assert_eq!(enhanced(vec![], &raw), Err(Violation::FrameShort { bytes: 0 }));
    let without = SendRules { enhanced_mpw: false, ..raw };
    let refused = Violation::OpcodeNotAllowed { opcode: c::OPCODE_ENHANCED_MPSW, opmod: 0 };
    assert_eq!(enhanced(vec![sixty()], &without), Err(refused));
}

#[test]
fn messages_and_their_segments() {
    let rc = rules(Transport::Rc);
    let remote = Remote { addr: 64, rkey: 2 };
    let atomic = |segment: DataSegment, addr| {
        let body = Body::Atomic(Remote { addr, rkey: 2 }, Atomic { swap_add: 1, compare: 2 }, segment);
        spoilt(SendWqe { control: control(c::OPCODE_ATOMIC_CS), body }, &rc, |_| ())
    };
    assert!(atomic(memory(8), 64).is_ok());
    assert_eq!(atomic(memory(16), 64), Err(Violation::BadAtomic { pieces: 1, bytes: 16 }));
    assert_eq!(atomic(memory(8), 65), Err(Violation::BadAtomic { pieces: 1, bytes: 8 }));
    let long = vec![Piece::Memory(memory(0)), Piece::Memory(memory(1))];
    let write = SendWqe { control: control(c::OPCODE_RDMA_WRITE), body: Body::Write(remote, long) };
    assert_eq!(spoilt(write, &rc, |_| ()), Err(Violation::MessageLong { bytes: (1 << 31) + 1 }));
    let ud = rules(Transport::Ud);
    let short = Control { ds: 2, ..control(c::OPCODE_SEND) };
    let mut bytes = short.encode().to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x80, 0, 0, 9, 0, 0, 0, 0]);
    assert_eq!(SendWqe::parse(&bytes, 7, &ud), Err(Violation::BadDs { ds: 2, min: 4, max: 63 }), "an extended vector has 48 bytes");
}

prop_compose! {
    fn segment()(byte_count in 14..1000u32, lkey: u32, addr: u64) -> DataSegment {
        DataSegment { byte_count, lkey, addr }
    }
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![segment().prop_map(Piece::Memory), vec(any::<u8>(), 14..80).prop_map(Piece::Inline)]
}

prop_compose! {
    fn ethernet(header: std::ops::Range<usize>)
        (bytes in vec(any::<u8>(), header), parser_offsets: [u8; 4], cs_flags: u8, parser_flags: u8, metadata: u32) -> Ethernet {
        Ethernet { parser_offsets, cs_flags, parser_flags, mss: 0, metadata, header: HeaderField::Inline(bytes) }
    }
}

prop_compose! {
    fn vector()(qkey: u32, qpn in 0..1u32 << 24, stat_rate_sl: u8, fl_mlid: u8, rlid: u16, long: bool, mac: [u8; 6],
                traffic_class: u8, hop_limit: u8, gid_index_flow_label: u32, gid: [u8; 16]) -> AddressVector {
        let extended = long.then_some(Grh { mac, traffic_class, hop_limit, gid_index_flow_label, gid });
        AddressVector { qkey, qpn, stat_rate_sl, fl_mlid, rlid, extended }
    }
}

fn remote() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, rkey)| Remote { addr, rkey })
}

/// Well-formed entries, and the queue pair that has them.
fn entry() -> impl Strategy<Value = (Transport, u8, Body)> {
    use Transport::{Raw, Rc, Ud};
    prop_oneof![
        Just((Raw, c::OPCODE_NOP, Body::Nop)),
        (ethernet(18..120), vec(piece(), 0..5)).prop_map(|(e, p)| (Raw, c::OPCODE_SEND, Body::Frame(e, p))),
        (ethernet(14..120), vec(piece(), 1..5), 1..=9000u16).prop_map(|(e, p, mss)| (
            Raw,
            c::OPCODE_TSO,
            Body::Segmented(Ethernet { mss, ..e }, p)
        )),
        (ethernet(0..1), vec(piece(), 1..6)).prop_map(|(e, p)| (Raw, c::OPCODE_ENHANCED_MPSW, Body::Frames(e, p))),
        (vector(), vec(piece(), 0..6)).prop_map(|(v, p)| (Ud, c::OPCODE_SEND_IMM, Body::Send(Some(v), p))),
        (remote(), vec(piece(), 0..6)).prop_map(|(r, p)| (Rc, c::OPCODE_RDMA_WRITE, Body::Write(r, p))),
        (remote(), vec(segment(), 0..6)).prop_map(|(r, s)| (Rc, c::OPCODE_RDMA_READ, Body::Read(r, s))),
        (remote(), any::<u64>(), any::<u64>(), segment()).prop_map(|(r, swap_add, compare, s)| {
            let (remote, segment) = (Remote { addr: r.addr & !7, ..r }, DataSegment { byte_count: 8, ..s });
            (Rc, c::OPCODE_ATOMIC_FA, Body::Atomic(remote, Atomic { swap_add, compare }, segment))
        }),
    ]
}

proptest! {
    #[test]
    fn what_was_written_is_read((transport, opcode, body) in entry(), index: u16, imm: u32, fm_ce_se: u8) {
        let wqe = SendWqe { control: Control { index, imm, fm_ce_se, ..control(opcode) }, body };
        let bytes = wqe.encode();
        prop_assert_eq!(bytes.len() % c::DS_UNIT, 0);
        let read = SendWqe::parse(&bytes, index, &rules(transport)).unwrap();
        prop_assert_eq!(usize::from(read.control.ds), bytes.len() / c::DS_UNIT);
        prop_assert_eq!(usize::from(read.blocks()), bytes.len().div_ceil(c::SEND_BLOCK));
        prop_assert_eq!(&read.body, &wqe.body);
        prop_assert_eq!(read.encode(), bytes);
    }

    #[test]
    fn one_wrong_byte_is_read_or_refused((transport, opcode, body) in entry(), at: prop::sample::Index, value: u8) {
        let wqe = SendWqe { control: control(opcode), body };
        let _ = spoilt(wqe, &rules(transport), |bytes| { let at = at.index(bytes.len()); bytes[at] = value; });
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in vec(any::<u8>(), 0..600), which in 0..4usize, opcode in 0..0x30u8, ds: u8, plain: bool,
    ) {
        let transport = [Transport::Raw, Transport::Rc, Transport::Uc, Transport::Ud][which];
        // Most random bytes break the first rule; these go further.
        if plain && bytes.len() >= 16 {
            let mut honest = Control { ds, ..control(opcode) };
            honest.ds = ds % (bytes.len() / 16) as u8 + 1;
            bytes[..16].copy_from_slice(&honest.encode());
        }
        if let Ok(wqe) = SendWqe::parse(&bytes, 7, &rules(transport)) {
            prop_assert!(usize::from(wqe.control.ds) * 16 <= bytes.len());
        }
    }
}
