//! See `lockgate_tests::fuzz::frame_parser`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockgate_tests::fuzz::frame_parser::check(data));
