//! `mwl_proxy_fuzz::h2_frames` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::h2_frames(data));
