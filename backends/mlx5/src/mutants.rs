//! Deliberate bugs of the driver, to be chosen one by one: those that drivers of such cards have. Each is a line where the right code is, and no line where the
//! feature `mutants` is off.

/// A bug.
#[allow(dead_code, unreachable_pub, reason = "without the feature, it is nobody else's")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The owner's bit is read the other way around.
    OwnerInverted,
    /// The owner's bit turns in every second round alone.
    OwnerTurnsLate,
    /// The card is not told which completions were taken.
    ConsumerForgotten,
    /// The card is told of one completion more than were taken.
    ConsumerAhead,
    /// Completions are 64 bytes apart, whatever the card says.
    CqeStride,
    /// Requests for an event have all the same number.
    EventsUncounted,
    /// Entries of a compressed run are not marked as never written.
    RunLeftBehind,
    /// Frames of a compressed run all have the first one's entry.
    RunIndexStands,
    /// All checksums are right.
    VerdictBlind,
    /// A flow tag is in the processor's order of bytes.
    TagSwapped,
    /// A VLAN tag that was taken off is forgotten.
    VlanLost,
    /// Cycles are nanoseconds.
    ClockUnscaled,
    /// The doorbell's register is not written.
    RegisterForgotten,
    /// The doorbell record is not written.
    RecordForgotten,
    /// The barrier before the register is missing: the record is in memory after it.
    RecordBehindRegister,
    /// A completion is asked for once the doorbell was rung.
    AskedTooLate,
    /// Completions are armed in the record alone.
    ArmRegisterForgotten,
    /// Completions are armed in the register alone.
    ArmRecordForgotten,
    /// Of an entry that is written into the register, the blocks behind the first are not.
    FirstBlockOnly,
    /// An entry is one unit longer than it says.
    DsShort,
    /// An entry says one unit more than it has.
    DsLong,
    /// The header in line is a byte shorter than it should be.
    InlineShort,
    /// An entry's index has eight bits.
    IndexShort,
    /// An entry names the next queue.
    NumberWrong,
    /// An entry does not go on at the queue's beginning.
    WrapLost,
    /// A VLAN tag is put behind the type.
    TagMisplaced,
    /// A piece's length is in the processor's order of bytes.
    LengthSwapped,
    /// A piece's key is the next one.
    KeyWrong,
    /// A piece begins a byte too late.
    AddressWrong,
    /// Checksums are not asked for.
    ChecksumsUnasked,
    /// A large send does not say how it is cut.
    CutForgotten,
    /// No completion is asked for.
    CompletionUnasked,
    /// The queue has room for more than it has.
    RoomMiscounted,
    /// Buffers are let go of when their frame is posted.
    BuffersLetGo,
    /// A cookie does not come back.
    CookieLost,
    /// What has failed was sent.
    FailedIsSent,
    /// A send queue that has failed is not made anew.
    NotMadeAnew,
    /// A send queue's failure is noticed by who sends from buffers alone.
    FailureUnnoticed,
    /// A doorbell is rung once.
    BellOnce,
    /// Entries of a receive queue are 16 bytes apart, whatever the card says.
    ReceiveStride,
    /// The card is told of one receive more than were posted.
    ProducerAhead,
    /// A chunk is remembered at the entry before its own.
    ChunkMisplaced,
    /// A chunk is posted again while somebody has a handle on it.
    ChunkGivenAway,
    /// A receive queue goes on counting when it begins anew.
    CountersKept,
    /// A receive queue that has failed is not started again.
    RestartForgotten,
    /// Whoever sleeps sleeps on while a receive queue is to be started again.
    StoppedSleeps,
    /// What no rule steers comes no more once its rules were refused.
    StraysForgotten,
    /// Rules lead to the receive queue that was.
    RulesLeftBehind,
    /// Queues that fail in silence are not heard of.
    FailuresUnheard,
    /// Nobody hears that the card is gone.
    GoneUnheard,
    /// Frames of a run lie a stride before where they do.
    StrideMisplaced,
    /// Strides that are passed over are a frame.
    FillerIsFrame,
    /// Strides are posted again while somebody has a handle on them.
    StridesGivenEarly,
    /// A rule that is moved keeps its tag.
    TagStays,
    /// A rule that is moved stays where it was as well.
    RuleStays,
    /// A rule takes any type of service.
    ServiceUnnamed,
    /// What a rule says of the inside of a tunnel, it says of the outside.
    InnerIsOuter,
    /// The card is not told of a rate.
    RateUnpassed,
    /// A send queue that is made anew has no rate.
    RateForgotten,
    /// Memory on the card is written while frames on their way are made of it.
    CardMemoryBusy,
    /// Frames that are copied to the card lie one upon the other.
    StagedOver,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All of them.
    pub const ALL: [Self; 61] = [
        Self::OwnerInverted,
        Self::OwnerTurnsLate,
        Self::ConsumerForgotten,
        Self::ConsumerAhead,
        Self::CqeStride,
        Self::EventsUncounted,
        Self::RunLeftBehind,
        Self::RunIndexStands,
        Self::VerdictBlind,
        Self::TagSwapped,
        Self::VlanLost,
        Self::ClockUnscaled,
        Self::RegisterForgotten,
        Self::RecordForgotten,
        Self::RecordBehindRegister,
        Self::AskedTooLate,
        Self::ArmRegisterForgotten,
        Self::ArmRecordForgotten,
        Self::FirstBlockOnly,
        Self::DsShort,
        Self::DsLong,
        Self::InlineShort,
        Self::IndexShort,
        Self::NumberWrong,
        Self::WrapLost,
        Self::TagMisplaced,
        Self::LengthSwapped,
        Self::KeyWrong,
        Self::AddressWrong,
        Self::ChecksumsUnasked,
        Self::CutForgotten,
        Self::CompletionUnasked,
        Self::RoomMiscounted,
        Self::BuffersLetGo,
        Self::CookieLost,
        Self::FailedIsSent,
        Self::NotMadeAnew,
        Self::FailureUnnoticed,
        Self::BellOnce,
        Self::ReceiveStride,
        Self::ProducerAhead,
        Self::ChunkMisplaced,
        Self::ChunkGivenAway,
        Self::CountersKept,
        Self::RestartForgotten,
        Self::StoppedSleeps,
        Self::StraysForgotten,
        Self::RulesLeftBehind,
        Self::FailuresUnheard,
        Self::GoneUnheard,
        Self::StrideMisplaced,
        Self::FillerIsFrame,
        Self::StridesGivenEarly,
        Self::TagStays,
        Self::RuleStays,
        Self::ServiceUnnamed,
        Self::InnerIsOuter,
        Self::RateUnpassed,
        Self::RateForgotten,
        Self::CardMemoryBusy,
        Self::StagedOver,
    ];
}

/// Whether the driver is this mutant; a constant `false` without the feature.
#[inline(always)]
pub(crate) fn is(mutant: Mutant) -> bool {
    #[cfg(feature = "mutants")]
    return chosen::CHOSEN.get() == Some(mutant);
    #[cfg(not(feature = "mutants"))]
    {
        let _ = mutant;
        false
    }
}

/// A register was written: whoever watches looks at it.
#[inline(always)]
pub(crate) fn rang() {
    #[cfg(feature = "mutants")]
    chosen::rang();
}

#[cfg(feature = "mutants")]
mod chosen {
    use core::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::Mutant;

    thread_local! {
        pub(super) static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
        static WATCHERS: RefCell<Vec<Rc<dyn Fn()>>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn rang() {
        let watchers = WATCHERS.with_borrow(Clone::clone);
        watchers.iter().for_each(|watcher| watcher());
    }

    /// Makes the calling thread's drivers this mutant, or healthy.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.set(mutant);
        WATCHERS.with_borrow_mut(Vec::clear);
    }

    /// Has a card look whenever a driver of the calling thread has written a register, until another mutant is chosen.
    pub fn watch(watcher: Rc<dyn Fn()>) {
        WATCHERS.with_borrow_mut(|watchers| watchers.push(watcher));
    }
}

#[cfg(feature = "mutants")]
pub use chosen::{choose, watch};
