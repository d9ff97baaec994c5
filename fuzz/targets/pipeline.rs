//! See `lockgate_tests::fuzz::pipeline`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockgate_tests::fuzz::pipeline::check(data));
