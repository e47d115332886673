//! Rendezvous hashing: a key belongs to the endpoint that ranks highest for it.
//!
//! Each endpoint's rank for a key depends on nothing but the two and its weight. So workers and proxies agree without
//! asking each other, in whatever order a file lists the endpoints. When one leaves, only its own keys move, and they
//! spread over all others; when it returns, the same keys come back. A Maglev table would move about twice as many, and a
//! ring with bounded loads sends a key elsewhere when its endpoint is busy, which each proxy would judge differently. The
//! price is that every endpoint is ranked for every attempt, about ten nanoseconds each.

/// A hash of `bytes` that is the same in every process and version (FNV-1a, mixed).
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// The rank for the key with the hash `key` of an endpoint with the hash `endpoint`. Endpoints rank highest as often as
/// their weights say (Schindelhauer and Schomaker's logarithmic method).
pub(super) fn rank(key: u64, endpoint: u64, weight: f64) -> f64 {
    let drawn = fraction(mix(key ^ endpoint));
    // Not zero, whose logarithm is no number.
    -weight / drawn.max(f64::MIN_POSITIVE).ln()
}

/// A number from 0 up to 1, without 1, from the upper 53 bits, which a float holds exactly.
pub(super) fn fraction(bits: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let upper = (bits >> 11) as f64;
    upper / 9_007_199_254_740_992.0
}

/// Spreads every bit over all others (`SplitMix64`'s last step).
pub(super) const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
