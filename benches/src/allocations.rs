//! Counts what a thread asks of the heap: a frame path must ask for nothing.
//!
//! A program that wants to count makes the allocator its own:
//! `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator;`. Without that every count is zero, so
//! [`assert_counts`] comes first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Needs neither lazy initialisation nor a destructor, either of which would allocate.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
#[derive(Debug)]
pub struct CountingAllocator;

fn note() {
    // A thread that is ending has no counter any more, and nobody who asks.
    _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator with the arguments it came with, so its guarantees are passed on;
// `note` touches nothing but an integer of the thread and does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which is the callee's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above, for `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller got `memory` from this allocator, which got it from the system's with the same layout.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for `realloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Allocations of this thread during `work`, and its result.
pub fn count<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = ALLOCATIONS.get();
    let result = work();
    (result, ALLOCATIONS.get() - before)
}

/// Panics if [`CountingAllocator`] is not this program's allocator.
pub fn assert_counts() {
    let (boxed, counted) = count(|| std::hint::black_box(Box::new(7_u64)));
    assert_eq!((*boxed, counted), (7, 1), "CountingAllocator is not the global allocator");
}
