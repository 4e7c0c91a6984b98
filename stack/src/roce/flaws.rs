//! Flaws: the message plane with one thing wrong, for the tests of this crate alone, so that the campaigns that are to catch such a thing are checked themselves
//! (`tests/flaws.rs`). Elsewhere each hook is a constant `false`.

/// What is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// A packet that overtook others is taken for the one that is expected.
    TakesWhatOvertook,
    /// What comes again is not acknowledged again.
    SilentAboutDuplicates,
    /// An atomic operation that comes again finds nothing.
    ForgetsOriginals,
    /// One packet more is acknowledged than came.
    AcknowledgesTooMuch,
    /// A write lands one byte further on.
    WritesFurtherOn,
    /// Each packet of a write lands where the first one does.
    WritesToTheStart,
    /// What is sent again begins one packet too late.
    GoesBackTooLittle,
    /// A request completes twice.
    CompletesTwice,
    /// Immediate data get lost.
    LosesImmediates,
    /// A message is as long as its last packet.
    LengthOfLastPacket,
    /// A message for which there is no receive is taken.
    TakesWithoutReceive,
    /// Each packet of a read has the first one's bytes.
    ReadsFromTheStart,
    /// A read that is asked for again from the middle begins anew.
    AsksFromTheStart,
    /// Damage is not looked for.
    IgnoresChecksums,
    /// A read is done once a later request is.
    DoneWithoutData,
    /// A packet that is missing does not end an unreliable message.
    GoesOnAfterGaps,
    /// The last packet of an unreliable message is a message.
    TakesEndsAlone,
    /// A message that begins before the last one ended is dropped with it.
    BeginsNothingAnew,
    /// An unreliable connection fails by what its peer may not write.
    FailsForThePeer,
    /// Whoever hears nothing gives up one repetition too early.
    GivesUpEarly,
    /// A question for a service that comes again is a new one.
    AsksProgramsTwice,
    /// A question for a service that was answered is not answered again.
    AnswersOnce,
    /// Whoever leaves a group goes on hearing it.
    StaysInGroups,
    /// Of the members of a group, one hears what is sent to it.
    OneOfAGroup,
    /// Congestion is nothing to whoever is told of it.
    IgnoresNotifications,
    /// Each mark is told of.
    NotifiesOfEachMark,
    /// Reads' responses go as fast as they can.
    ReadsUnpaced,
    /// A half of the receive buffer is offered twice.
    OffersTwice,
    /// A byte is left out of each read.
    SkipsBytes,
    /// Room in the send buffer is used twice.
    OverfillsSendBuffer,
    /// Each message goes to where the last one went.
    TargetStandsStill,
    /// A piece of the peer's buffer is used again without being offered again.
    TargetStays,
    /// The end of the stream is an error.
    EndIsAnError,
    /// A message that is read in part is gone.
    DropsRests,
    /// What was read is not free.
    KeepsWhatWasRead,
    /// A direct write goes one byte further on.
    DirectWritesFurtherOn,
    /// Tables are written in the writer's byte order.
    OwnByteOrder,
    /// Whoever closes does not wait for what was sent.
    ClosesAtOnce,
    /// Whoever hears that the peer sends no more, sends no more either.
    EndsTogether,
    /// Control messages are not counted as they go.
    UncountedControls,
    /// What does not fit at the end of the send buffer is left out.
    DoesNotWrap,
    /// Messages go whether the peer lets them or not.
    SendsWithoutCredits,
    /// Whoever closes does not tell the peer's connection management.
    EndsUntold,
    /// Messages complete in silence where there is no room for one that would speak for them.
    SilentToTheLast,
    /// A message speaks for some that come after it.
    SpeaksTooEarly,
    /// The short way takes a packet whatever its number.
    PredictsAnyNumber,
    /// The short way gives the next packet the same number.
    PredictsTheSameAgain,
}

#[cfg(test)]
impl Flaw {
    /// Those of queue pairs.
    pub(crate) const OF_QUEUE_PAIRS: [Self; 17] = [
        Self::TakesWhatOvertook,
        Self::SilentAboutDuplicates,
        Self::ForgetsOriginals,
        Self::AcknowledgesTooMuch,
        Self::WritesFurtherOn,
        Self::WritesToTheStart,
        Self::GoesBackTooLittle,
        Self::CompletesTwice,
        Self::LosesImmediates,
        Self::LengthOfLastPacket,
        Self::TakesWithoutReceive,
        Self::ReadsFromTheStart,
        Self::AsksFromTheStart,
        Self::IgnoresChecksums,
        Self::DoneWithoutData,
        Self::PredictsAnyNumber,
        Self::PredictsTheSameAgain,
    ];

    /// Whether what is wrong is on the short way, or nothing is: all else is wrong on the long way.
    pub(crate) const fn leaves_short_way(self) -> bool {
        matches!(self, Self::None | Self::PredictsAnyNumber | Self::PredictsTheSameAgain)
    }

    /// Those of unreliable connections.
    pub(crate) const OF_UNRELIABLE: [Self; 8] = [
        Self::GoesOnAfterGaps,
        Self::TakesEndsAlone,
        Self::BeginsNothingAnew,
        Self::FailsForThePeer,
        Self::WritesToTheStart,
        Self::CompletesTwice,
        Self::LosesImmediates,
        Self::IgnoresChecksums,
    ];

    /// Those of congestion control.
    pub(crate) const OF_CONGESTION: [Self; 3] = [Self::IgnoresNotifications, Self::NotifiesOfEachMark, Self::ReadsUnpaced];

    /// Those of datagrams' services and groups.
    pub(crate) const OF_SERVICES: [Self; 4] = [Self::AsksProgramsTwice, Self::AnswersOnce, Self::StaysInGroups, Self::OneOfAGroup];

    /// Those of rsockets, and those below them that only a whole connection shows.
    pub(crate) const OF_RSOCKETS: [Self; 20] = [
        Self::GivesUpEarly,
        Self::SilentAboutDuplicates,
        Self::EndsUntold,
        Self::OffersTwice,
        Self::SkipsBytes,
        Self::OverfillsSendBuffer,
        Self::TargetStandsStill,
        Self::TargetStays,
        Self::EndIsAnError,
        Self::DropsRests,
        Self::KeepsWhatWasRead,
        Self::DirectWritesFurtherOn,
        Self::OwnByteOrder,
        Self::ClosesAtOnce,
        Self::EndsTogether,
        Self::UncountedControls,
        Self::DoesNotWrap,
        Self::SendsWithoutCredits,
        Self::SilentToTheLast,
        Self::SpeaksTooEarly,
    ];
}
