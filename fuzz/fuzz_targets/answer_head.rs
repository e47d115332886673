//! `mwl_proxy_fuzz::answer_head` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::answer_head(data));
