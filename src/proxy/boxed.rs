//! Makes large values, which are mostly futures, in their box.
//!
//! `Box::new(value)` makes the value on the stack first and then copies it, because it would have to be dropped if there
//! were no memory. A future is copied with the room for everything that it will ever hold.

#![expect(clippy::inline_always, reason = "a value is made in its box only where its box is made")]

use std::pin::Pin;
use std::sync::Arc;

/// The value that `make` returns, which is made in its box if the compiler can.
#[inline(always)]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// The same in an `Arc`.
#[inline(always)]
pub(crate) fn shared<T>(make: impl FnOnce() -> T) -> Arc<T> {
    Arc::new_cyclic(|_| make())
}

/// The same for a future.
#[inline(always)]
pub(crate) fn pinned<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}
