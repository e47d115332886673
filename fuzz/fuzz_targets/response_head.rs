//! `mwl_proxy_fuzz::response_head` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::response_head(data));
