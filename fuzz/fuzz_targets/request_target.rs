//! `mwl_proxy_fuzz::request_target` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::request_target(data));
