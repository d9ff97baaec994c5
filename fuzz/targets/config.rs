//! See `lockgate_tests::fuzz::config`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    lockgate_tests::fuzz::config::check(text);
});
