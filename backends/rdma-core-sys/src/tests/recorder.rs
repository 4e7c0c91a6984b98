//! Operations that write down how they were called.

use std::cell::RefCell;

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// An operation's name, and its arguments.
pub(super) type Call = (&'static str, Vec<u64>);

pub(super) fn record(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

/// What was written down in this thread since it was last asked.
pub(super) fn calls() -> Vec<Call> {
    CALLS.take()
}

/// An argument, or a result, as a number.
pub(super) trait Word {
    fn word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! words {
    ($($type:ty),*) => {
        $(#[allow(clippy::cast_lossless, reason = "of some types it is")]
        impl Word for $type {
            fn word(self) -> u64 {
                self as i64 as u64
            }

            fn from_word(word: u64) -> Self {
                word as Self
            }
        })*
    };
}

words!(u8, u16, u32, u64, i32, usize);

impl Word for () {
    fn word(self) -> u64 {
        0
    }

    fn from_word(_: u64) -> Self {}
}

impl<T> Word for *mut T {
    fn word(self) -> u64 {
        self.addr() as u64
    }

    fn from_word(word: u64) -> Self {
        std::ptr::without_provenance_mut(word as usize)
    }
}

impl<T> Word for *const T {
    fn word(self) -> u64 {
        self.addr() as u64
    }

    fn from_word(word: u64) -> Self {
        std::ptr::without_provenance(word as usize)
    }
}

/// What every recorder that gives a result gives: it fits any of them.
pub(super) const RESULT: u64 = 0x5a;

/// An operation that writes down its name and arguments, and answers [`RESULT`].
macro_rules! recorder {
    ($name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {{
        unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            $crate::tests::recorder::record((stringify!($name), vec![$($crate::tests::recorder::Word::word($arg)),*]));
            $(<$result as $crate::tests::recorder::Word>::from_word($crate::tests::recorder::RESULT))?
        }
        Some($name as unsafe extern "C" fn($($type),*) $(-> $result)?)
    }};
}
pub(super) use recorder;

/// Of each row: puts a recorder where the operation is, calls the function with the row's arguments after the object, and
/// compares what arrived.
macro_rules! reaches {
    ($object:expr; $type:ty; $($op:ident($($arg:ident: $arg_type:ty = $value:expr),* $(,)?) $(-> $result:ty)? => $function:ident;)*) => {$({
        use $crate::tests::recorder::{Word, calls};
        let object: *mut $type = $object;
        // SAFETY: the object is the test's own; its operation is replaced while nobody calls it, and takes any arguments.
        let result = unsafe {
            (*object).$op = $crate::tests::recorder::recorder!($op(object: *mut $type $(, $arg: $arg_type)*) $(-> $result)?);
            $function(object $(, <$arg_type as Word>::from_word($value))*)
        };
        let answer = 0 $(+ <$result as Word>::from_word($crate::tests::recorder::RESULT).word())?;
        assert_eq!(result.word(), answer, stringify!($function));
        assert_eq!(calls(), [(stringify!($op), vec![object.word() $(, <$arg_type as Word>::from_word($value).word())*])]);
    })*};
}
pub(super) use reaches;
