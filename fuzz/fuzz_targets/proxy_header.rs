//! `mwl_proxy_fuzz::proxy_header` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::proxy_header(data));
