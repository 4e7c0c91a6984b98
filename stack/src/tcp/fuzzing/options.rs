//! TCP's options: as bytes that anybody sent, and as what this stack would send.

use super::Bytes;
use crate::wire::tcp::{Flags, Header, LEN, LEN_MAX, Options, SackBlock, SackBlocks, SeqNumber};

pub(crate) fn options(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    if how & 1 == 0 {
        as_bytes(rest);
    } else {
        as_values(&mut Bytes::new(rest));
    }
}

/// The options of a header that somebody sent.
fn as_bytes(options: &[u8]) {
    let words = options.len().min(LEN_MAX - LEN) / 4 * 4;
    let mut wire = [0; LEN_MAX];
    wire[12] = ((LEN + words) as u8 / 4) << 4;
    wire[LEN..LEN + words].copy_from_slice(&options[..words]);
    let wire = &wire[..LEN + words];
    let (header, len) = Header::parse(wire).expect("a header of that length");
    assert_eq!(len, wire.len());
    let _ = Options::parse_known(&wire[LEN..]);
    again(&header);
}

fn as_values(bytes: &mut Bytes<'_>) {
    let which = bytes.byte();
    let is = |bit: u8| which >> bit & 1 == 1;
    let mut sack = SackBlocks::default();
    for _ in 0..which >> 5 {
        sack.push(SackBlock { start: SeqNumber(bytes.word()), end: SeqNumber(bytes.word()) });
    }
    let options = Options {
        mss: is(0).then(|| bytes.short()),
        window_scale: is(1).then(|| bytes.byte()),
        sack_permitted: is(2),
        timestamps: is(3).then(|| (bytes.word(), bytes.word())),
        sack,
    };
    let header = Header {
        src_port: bytes.short(),
        dst_port: bytes.short(),
        seq: SeqNumber(bytes.word()),
        ack: SeqNumber(bytes.word()),
        flags: Flags::from_bits_retain(bytes.byte()),
        window: bytes.short(),
        checksum: bytes.short(),
        urgent: bytes.short(),
        options,
    };
    again(&header);
}

/// What is emitted is read as the same, but for blocks that had no room.
fn again(header: &Header) {
    let mut wire = [0xaa; LEN_MAX];
    let len = header.emit(&mut wire);
    assert_eq!(len, header.header_len(), "as long as it says");
    assert!(len.is_multiple_of(4) && len <= LEN_MAX, "{len} bytes of header");
    let (read, read_len) = Header::parse(&wire[..len]).expect("what was emitted parses");
    assert_eq!(read_len, len);
    let kept = read.options.sack.as_slice().len();
    let mut expected = *header;
    expected.options.sack.truncate(kept);
    assert_eq!(read, expected);
    let blocks = header.options.sack.as_slice().len();
    let has_room = len + 8 + if kept == 0 { 4 } else { 0 } <= LEN_MAX;
    assert!(kept == blocks || !has_room, "{kept} of {blocks} blocks, and room for more: {len} bytes");
    if header.options.are_stamps_at_most() {
        let mut fixed = [0xaa; LEN_MAX];
        assert_eq!(header.emit_of_fixed_layout(&mut fixed), len);
        assert_eq!(fixed[..len], wire[..len]);
    }
    let known = Options::parse_known(&wire[LEN..len]);
    assert_eq!(known, read.options, "all of them are known ones");
}
