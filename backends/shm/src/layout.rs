//! Where everything lies in the shared segments. Both sides must agree to the byte: changing anything here changes
//! [`VERSION`].

/// First word of a member segment.
pub(crate) const MEMBER_MAGIC: u64 = u64::from_le_bytes(*b"RWmember");
/// First word of a channel.
pub(crate) const CHANNEL_MAGIC: u64 = u64::from_le_bytes(*b"RWchannl");
/// Of everything in this file, and of the greeting.
pub(crate) const VERSION: u64 = 11;

/// Offsets common to both kinds of segment.
pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const VERSION_AT: usize = 8;
/// Whose segment it is.
pub(crate) const OWNER_AT: usize = 16;

/// Member segment: bytes of its pool.
pub(crate) const POOL_LEN_AT: usize = 24;
/// Member segment: the wake-up generation, odd while the member sleeps; its highest bit says that unsolicited frames do not wake the member. Its own
/// pair of cache lines, because processors prefetch lines in pairs.
pub(crate) const ARMED_AT: usize = 128;
/// Member segment: the generation of the member's pauses, odd while it neither polls nor sleeps on an armed ring: then whoever fills half a
/// channel wakes it. Beside the other, for senders look at both.
pub(crate) const PAUSED_AT: usize = ARMED_AT + 8;
/// Member segment: the rule table's generation, odd while it changes.
pub(crate) const RULES_VERSION_AT: usize = 256;
/// Member segment: how many entries of the rule table were ever used: of IPv4's, and of IPv6's.
pub(crate) const RULES_LEN_AT: usize = 264;
pub(crate) const RULES_V6_LEN_AT: usize = 272;
/// Member segment: the cores on which a thread of the member spins, a bit each.
pub(crate) const CORE_CLAIMS_AT: usize = 384;
/// Words of these bits. A pair of cache lines is as many cores as `cpu_set_t` has; where there are more, two that share a bit
/// are claimed as one, and the one who comes second sleeps instead of spinning.
pub(crate) const CORE_CLAIM_WORDS: usize = 16;
/// Member segment: which region of which member's a thread of this one writes to at the moment; zero: none.
pub(crate) const WRITING_AT: usize = 640;
/// Member segment: the rule table of IPv4.
pub(crate) const RULES_AT: usize = 4096;
/// Entries: what a rule matches, and the kernel's name of the socket beside it, or a listener's stamp.
pub(crate) const RULES_MAX: usize = 4096;
/// Bytes of an entry.
pub(crate) const RULE_BYTES: usize = 16;
/// Member segment: the rule table of IPv6, with as many entries. Apart from the other, so that to look for an address is to go through its
/// family's rules only. (Pages of it that have no entry take no memory.)
pub(crate) const RULES_V6_AT: usize = RULES_AT + RULES_MAX * RULE_BYTES;
/// Bytes of its entries: as IPv4's, and the address behind.
pub(crate) const RULE_V6_BYTES: usize = 32;
/// Member segment: the table of memory regions that peers may write to by themselves.
pub(crate) const REGIONS_AT: usize = RULES_V6_AT + RULES_MAX * RULE_V6_BYTES;
/// Entries.
pub(crate) const REGIONS_MAX: usize = 1024;
/// Bytes of an entry.
pub(crate) const REGION_BYTES: usize = 64;
/// Member segment: the send buffers.
pub(crate) const POOL_AT: usize = REGIONS_AT + REGIONS_MAX * REGION_BYTES;

/// Channel: whom it is for.
pub(crate) const TO_AT: usize = 24;
/// Channel: how many slots of the opposite ring its owner has consumed.
pub(crate) const CONSUMED_AT: usize = 128;
/// Channel: nonzero while its owner sleeps and could not send for lack of room.
pub(crate) const WAITING_AT: usize = 256;
/// Channel: how many slots of the opposite ring its owner has consumed and is through with. Only looked at once the owner is dead, so that storing it
/// costs next to nothing.
pub(crate) const PROCESSED_AT: usize = 384;
/// Channel: how many of its owner's connections with the peer are unfinished: 16 bits for all those that have one hash of their addresses.
pub(crate) const UNFINISHED_AT: usize = 512;
/// Words of these counts, four in each.
pub(crate) const UNFINISHED_WORDS: usize = (SLOTS_AT - UNFINISHED_AT) / 8;
/// Channel: the ring.
pub(crate) const SLOTS_AT: usize = 4096;
/// Slots of the ring. (loom explores every interleaving, so its rings are short.)
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 256 };
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 256;
/// Within a slot: the frame, or its headers, from the Ethernet header's type field on. The addresses are left out: they name
/// slots of whoever uses them, so the receiver puts its own there. (The publish word is first. So a small TCP segment
/// with its headers fits into two cache lines, which processors fetch as one.)
pub(crate) const SLOT_DATA: usize = 8;
/// Bytes of a frame that are not in its slot: both Ethernet addresses.
pub(crate) const ADDRESSES: usize = 12;
/// Within a slot: the gather list of a frame that isn't inline.
pub(crate) const SLOT_GATHER: usize = 184;
/// Within a slot: the VLAN tag, if the frame has one.
pub(crate) const SLOT_VLAN: usize = 248;
/// Channel: the release ring, flights that are handed back to the opposite ring's owner.
pub(crate) const RELEASE_AT: usize = SLOTS_AT + 256 * SLOT_BYTES;
/// Entries of the release ring, and so the most flights of one direction: it can't overflow.
pub(crate) const FLIGHTS: usize = if cfg!(loom) { 2 } else { 4096 };
/// Bytes of a channel.
pub(crate) const CHANNEL_BYTES: usize = RELEASE_AT + 4096 * 8;

/// The longest frame that is sent wholly inside its slot.
pub(crate) const INLINE_MAX: usize = SLOT_VLAN - SLOT_DATA + ADDRESSES;
/// The longest head of a frame that has a gather list: Ethernet with VLAN (18), IPv4 (60, or IPv6's 40) and TCP (60) fit.
pub(crate) const GATHER_HEAD_MAX: usize = SLOT_GATHER - SLOT_DATA + ADDRESSES;
/// Most entries of a gather list.
pub(crate) const GATHER_MAX: usize = (SLOT_VLAN - SLOT_GATHER) / 8;
/// No segment of either kind is shorter.
pub(crate) const SEGMENT_MIN: usize = CHANNEL_BYTES;
/// Bytes of a small send buffer.
pub(crate) const SMALL_BYTES: usize = 2048;
/// Bytes of a large send buffer.
pub(crate) const LARGE_BYTES: usize = 32768;
/// The largest IP packet.
pub(crate) const MTU: usize = 65535;
/// Bytes of an Ethernet header; no frame is shorter.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// The longest frame: MTU, Ethernet and one VLAN tag.
pub(crate) const FRAME_MAX: usize = MTU + ETHERNET_BYTES + 4;

const _: () = assert!(SLOTS.is_power_of_two() && FLIGHTS.is_power_of_two() && FLIGHTS <= 1 << 16);
const _: () = assert!(INLINE_MAX <= ringway_stack::device::HEAD_MAX && INLINE_MAX < 256);
const _: () = assert!(GATHER_HEAD_MAX >= 18 + 60 + 60);
const _: () = assert!(CORE_CLAIMS_AT.is_multiple_of(128) && CORE_CLAIMS_AT + CORE_CLAIM_WORDS * 8 <= RULES_AT);
const _: () = assert!(WRITING_AT >= CORE_CLAIMS_AT + CORE_CLAIM_WORDS * 8 && WRITING_AT + 8 <= RULES_AT);
const _: () = assert!(REGIONS_AT.is_multiple_of(REGION_BYTES) && REGIONS_MAX.is_power_of_two());
const _: () = assert!(RULES_V6_AT.is_multiple_of(4096) && POOL_AT.is_multiple_of(4096));
const _: () = assert!(POOL_AT >= SEGMENT_MIN);
const _: () = assert!(CHANNEL_BYTES.is_multiple_of(4096) && SLOTS_AT.is_multiple_of(SLOT_BYTES));
const _: () = assert!(GATHER_MAX * LARGE_BYTES >= FRAME_MAX);

/// Byte offset of the slot at ring position `position`.
pub(crate) const fn slot_at(position: u64) -> usize {
    SLOTS_AT + (position as usize & (SLOTS - 1)) * SLOT_BYTES
}

/// Byte offset of the release ring's entry at `position`.
pub(crate) const fn release_at(position: u64) -> usize {
    RELEASE_AT + (position as usize & (FLIGHTS - 1)) * 8
}
