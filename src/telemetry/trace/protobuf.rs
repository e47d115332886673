//! Writes messages of Protocol Buffers (<https://protobuf.dev/programming-guides/encoding/>), as far as spans need it.
//!
//! A message is written in place, field by field; where its length stands before it, that is put there once it is known.

/// How a value is written: the low three bits of a field's tag.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_32: u64 = 5;

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyValue<'a> {
    Text(&'a str),
    /// Several texts, one behind the other.
    Joined(&'a [&'a str]),
    Whole(i64),
    Double(f64),
    Flag(bool),
}

impl<'a> From<&'a str> for AnyValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

/// Appends a field with these bytes.
pub(super) fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    tag(out, field, LENGTH);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field with a number, unless it is zero, which is the default.
pub(super) fn number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        tag(out, field, VARINT);
        varint(out, number);
    }
}

/// Appends a `fixed64` field.
pub(super) fn fixed64(out: &mut Vec<u8>, field: u32, number: u64) {
    tag(out, field, FIXED_64);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a `fixed32` field.
pub(super) fn fixed32(out: &mut Vec<u8>, field: u32, number: u32) {
    tag(out, field, FIXED_32);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a field with the message that `write` appends.
pub(super) fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LENGTH);
    let start = out.len();
    write(out);
    let (length, digits) = encoded((out.len() - start) as u64);
    out.splice(start..start, length.into_iter().take(digits));
}

/// Appends the beginning of a field with a message of this length.
pub(super) fn message_of(out: &mut Vec<u8>, field: u32, length: usize) {
    tag(out, field, LENGTH);
    varint(out, length as u64);
}

/// Appends a `KeyValue` of OpenTelemetry's `common.proto` as this field.
pub(super) fn attribute<'a>(
    out: &mut Vec<u8>,
    field: u32,
    key: &str,
    value: impl Into<AnyValue<'a>>,
) {
    let value = value.into();
    let (text, content) = match value {
        AnyValue::Text(text) => (true, text.len()),
        AnyValue::Joined(texts) => (true, texts.iter().map(|text| text.len()).sum()),
        AnyValue::Whole(number) => (false, varint_length(number.cast_unsigned())),
        AnyValue::Double(_) => (false, 8),
        AnyValue::Flag(_) => (false, 1),
    };
    let value_length = 1 + content + if text { varint_length(content as u64) } else { 0 };
    let nested = 1 + varint_length(value_length as u64) + value_length;
    let length = 1 + varint_length(key.len() as u64) + key.len() + nested;
    message_of(out, field, length);
    bytes(out, 1, key.as_bytes());
    message_of(out, 2, value_length);
    match value {
        AnyValue::Text(text) => bytes(out, 1, text.as_bytes()),
        AnyValue::Joined(texts) => {
            message_of(out, 1, content);
            for text in texts {
                out.extend_from_slice(text.as_bytes());
            }
        }
        AnyValue::Flag(flag) => {
            tag(out, 2, VARINT);
            out.push(u8::from(flag));
        }
        AnyValue::Whole(number) => {
            tag(out, 3, VARINT);
            varint(out, number.cast_unsigned());
        }
        AnyValue::Double(number) => fixed64(out, 4, number.to_bits()),
    }
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u64) {
    varint(out, u64::from(field) << 3 | kind);
}

fn varint(out: &mut Vec<u8>, number: u64) {
    if let Ok(small) = u8::try_from(number)
        && small < 0x80
    {
        out.push(small);
        return;
    }
    let (digits, count) = encoded(number);
    out.extend(digits.into_iter().take(count));
}

/// Seven bits in each byte, the lowest first; all but the last have their highest bit set. Also returns how many there are.
fn encoded(number: u64) -> ([u8; 10], usize) {
    let (mut rest, mut digits) = (number, [0; 10]);
    let count = varint_length(number);
    for (place, digit) in digits.iter_mut().take(count).enumerate() {
        let [low, ..] = rest.to_le_bytes();
        *digit = low & 0x7f | if place + 1 < count { 0x80 } else { 0 };
        rest >>= 7;
    }
    (digits, count)
}

const fn varint_length(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}
