//! Hexadecimal digits, in lower case.

/// Two digits for each byte.
pub(super) fn digits<const N: usize>(bytes: [u8; N]) -> [[u8; 2]; N] {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
    bytes.map(|byte| [digit(byte >> 4), digit(byte & 15)])
}
