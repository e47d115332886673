//! W3C Trace Context, level 2: `traceparent` in and out.
//!
//! A value that breaks a rule of §3.2 is ignored: the request starts its own trace, and its `tracestate` is removed
//! (§3.3, §4.3). The version sent is always 00. The two defined flags are kept and the others are cleared (§3.2.2.5).

use std::fmt;

use crate::telemetry::hex;

/// The field with the place in a trace.
pub const TRACEPARENT: &str = "traceparent";

/// The field with vendors' additions, which passes unchanged.
pub const TRACESTATE: &str = "tracestate";

/// The length of a value of version 00.
const LENGTH: usize = 55;

const SAMPLED: u8 = 0b01;
const RANDOM: u8 = 0b10;

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

/// The content of a caller's `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    trace: [u8; 16],
    span: SpanId,
    flags: u8,
}

/// A request's place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    trace: [u8; 16],
    /// The caller's span, if there is one.
    parent: Option<SpanId>,
    /// The request's own span.
    span: SpanId,
    flags: u8,
}

impl Parent {
    /// Parses a `traceparent`; `None` if it is malformed (§3.2.2).
    pub fn parse(value: &[u8]) -> Option<Self> {
        let version = octet(value.get(..2)?)?;
        let (head, rest) = value.split_at_checked(LENGTH)?;
        // A later version may append more, after another dash.
        let well_ended = rest.is_empty() || (version > 0 && rest.starts_with(b"-"));
        let dashes = [2, 35, 52].iter().all(|place| head.get(*place) == Some(&b'-'));
        if version == 0xff || !well_ended || !dashes {
            return None;
        }
        let trace = octets::<16>(head.get(3..35)?)?;
        let span = octets::<8>(head.get(36..52)?)?;
        let flags = octet(head.get(53..55)?)? & (SAMPLED | RANDOM);
        let zero = trace == [0; 16] || span == [0; 8];
        (!zero).then_some(Self { trace, span: SpanId(span), flags })
    }

    /// Whether the caller samples.
    pub const fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl Context {
    /// A span below the caller's.
    pub const fn beneath(parent: Parent, span: SpanId) -> Self {
        let Parent { trace, span: above, flags } = parent;
        Self { trace, parent: Some(above), span, flags }
    }

    /// The first span of a trace.
    pub const fn root(trace: [u8; 16], span: SpanId, sampled: bool) -> Self {
        let flags = if sampled { SAMPLED | RANDOM } else { RANDOM };
        Self { trace, parent: None, span, flags }
    }

    /// Whether spans are made.
    pub const fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The `traceparent` for an upstream, whose caller is `span`.
    pub fn header(&self, span: SpanId) -> [u8; LENGTH] {
        let mut value = [b'-'; LENGTH];
        let mut put = |at: usize, digits: &[u8]| {
            if let Some(place) = value.get_mut(at..at + digits.len()) {
                place.copy_from_slice(digits);
            }
        };
        put(0, b"00");
        put(3, hex::digits(self.trace).as_flattened());
        put(36, hex::digits(span.0).as_flattened());
        put(53, hex::digits([self.flags]).as_flattened());
        value
    }

    /// The trace, as text.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace))
    }

    /// The trace.
    pub const fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// The request's own span.
    pub const fn span(&self) -> SpanId {
        self.span
    }

    /// The caller's span.
    pub const fn parent(&self) -> Option<SpanId> {
        self.parent
    }
}

/// Formatted as in `traceparent`.
impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

fn octets<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    if pairs.len() != N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(pairs) {
        *byte = octet(pair)?;
    }
    Some(out)
}

/// Two lower-case digits. Upper-case ones are malformed (§3.2.2).
fn octet(pair: &[u8]) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// The valid value with another version, or with other flags.
    fn version(version: &str) -> String {
        GOOD.replacen("00", version, 1)
    }

    fn flags(flags: &str) -> String {
        format!("{}{flags}", GOOD.strip_suffix("01").unwrap())
    }

    fn header(context: &Context, span: [u8; 8]) -> String {
        String::from_utf8(context.header(SpanId(span)).to_vec()).unwrap()
    }

    #[test]
    fn a_well_formed_value_is_continued() {
        let parent = Parent::parse(GOOD.as_bytes()).unwrap();
        assert!(parent.sampled());
        let own = Context::beneath(parent, SpanId([1; 8]));
        assert_eq!(own.parent().unwrap().0, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        let sent = header(&own, [2; 8]);
        assert_eq!(sent, "00-0af7651916cd43dd8448eb211c80319c-0202020202020202-01");
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known_and_flags_are_masked() {
        for (value, sent_flags) in [
            (version("cc"), "01"),
            (format!("{}-what-the-future-brings", version("01")), "01"),
            (flags("00"), "00"),
            (flags("ff"), "03"),
            (flags("fe"), "02"),
        ] {
            let parent = Parent::parse(value.as_bytes()).unwrap();
            let sent = header(&Context::beneath(parent, SpanId([1; 8])), [1; 8]);
            assert!(sent.starts_with("00-0af7") && sent.ends_with(sent_flags), "{value}: {sent}");
        }
    }

    #[test]
    fn what_is_malformed_is_none() {
        for bad in [
            "",
            "00",
            &flags("0"),
            &format!("{GOOD}-"),
            &format!("{GOOD} "),
            &format!("{GOOD}0"),
            &format!("{}x", version("cc")),
            &version("ff"),
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &version("0g"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00-0af7651916cd43dd8448eb211c80319 -b7ad6b7169203331-01",
        ] {
            assert_eq!(Parent::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        /// What is sent can be parsed again and means the same.
        #[test]
        fn what_is_sent_is_well_formed(
            trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), sampled in any::<bool>(),
        ) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let sent = header(&Context::root(trace, SpanId([9; 8]), sampled), span);
            let parent = Parent::parse(sent.as_bytes()).unwrap();
            prop_assert_eq!((parent.trace, parent.span, parent.sampled()), (trace, SpanId(span), sampled));
        }

        /// Any input is either parsed or refused.
        #[test]
        fn anything_may_come(value in "[0-9a-g-]{0,60}") {
            if let Some(parent) = Parent::parse(value.as_bytes()) {
                prop_assert!(value.len() >= LENGTH && parent.trace != [0; 16]);
            }
        }
    }
}
