//! `mwl_proxy_fuzz::chunked_body` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::chunked_body(data));
