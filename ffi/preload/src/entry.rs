//! What each exported function is: its row's, for a library.

use core::ptr::null;

use crate::errno::fits;
use crate::process::{clone, ends, exec, means};
use crate::types::*;
use crate::{Exports, Intercept, Means, Timeout, by_number, cancel, next, positioned, signals};

crate::functions!(entry []);
