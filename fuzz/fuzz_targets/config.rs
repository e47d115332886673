//! `mwl_proxy_fuzz::config` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mwl_proxy_fuzz::config(data));
