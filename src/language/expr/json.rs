//! `toJson` and `fromJson`: RFC 8785, the JSON Canonicalization Scheme.
//!
//! Authors use the text as a cache key or sign it, so equal values must give equal bytes. That is why members
//! are sorted by UTF-16 code units, numbers are written as ECMAScript writes them, and strings escape only
//! what RFC 8785 lists.

use cel::ExecutionError;

use super::convert::DEPTH;
use super::work;
use crate::language::value::{Map, Value};

/// The canonical text of `value`.
pub(super) fn canonical(value: &Value) -> Result<String, ExecutionError> {
    let mut text = String::new();
    write(value, &mut text)?;
    Ok(text)
}

/// Writes `value`. Its depth is bounded: by [`DEPTH`], or by the parser if it came from outside.
fn write(value: &Value, out: &mut String) -> Result<(), ExecutionError> {
    work::spend(1)?;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Number(number) => {
            work::spend(8)?;
            out.push_str(&ecmascript(*number));
        }
        Value::String(text) => {
            work::spend_bytes(text.len())?;
            quote(text, out);
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(&item, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => write_members(members, out)?,
        Value::Native(native) => write_members(&native.to_map(), out)?,
    }
    Ok(())
}

fn write_members(members: &Map, out: &mut String) -> Result<(), ExecutionError> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    out.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        work::spend_bytes(name.len())?;
        quote(name, out);
        out.push(':');
        write(value, out)?;
    }
    out.push('}');
    Ok(())
}

/// RFC 8785, 3.2.2.2: `serde_json` escapes the same.
fn quote(text: &str, out: &mut String) {
    // Writing a string cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// A finite number as ECMAScript's `Number::toString` writes it (RFC 8785, 3.2.2.3): the shortest digits that
/// read back as the same double, without an exponent from 1e-7 up to 1e21, else with one.
fn ecmascript(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let (mantissa, exponent) = shortest(number.abs());
    let digits = mantissa.replace('.', "");
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // The number of digits before the decimal point.
    let point = exponent + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let plain = match point {
        point if point >= count && point <= 21 => format!("{digits}{}", zeros(point - count)),
        point if point > 0 && point <= 21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            format!("{whole}.{fraction}")
        }
        point if point > -6 && point <= 0 => format!("0.{}{digits}", zeros(-point)),
        _ => format!("{mantissa}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    };
    if number < 0.0 { format!("-{plain}") } else { plain }
}

/// The mantissa and exponent of the shortest decimal that reads back as `number`. Of two that are equally
/// short and near, ECMAScript takes the even one; Rust may take the other.
fn shortest(number: f64) -> (String, i32) {
    let split = |text: &str| {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        (mantissa.to_owned(), exponent.parse().unwrap_or(0))
    };
    let (mantissa, exponent) = split(&format!("{number:e}"));
    let odd = mantissa.ends_with(['1', '3', '5', '7', '9']);
    let last = mantissa.bytes().last().unwrap_or(b'0');
    let even = format!(
        "{}{}",
        mantissa.get(..mantissa.len() - 1).unwrap_or_default(),
        char::from(last.saturating_sub(1))
    );
    if !odd || mantissa.len() == 1 || format!("{even}e{exponent}").parse() != Ok(number) {
        return (mantissa, exponent);
    }
    // `number` lies halfway between the two if the exact decimal continues with a single 5.
    let (exact, _) = split(&format!("{number:.800e}"));
    let half = exact.strip_prefix(&even).map(|rest| rest.trim_end_matches('0'));
    if half == Some("5") {
        return (even, exponent);
    }
    (mantissa, exponent)
}

/// Parses a JSON text of at most [`DEPTH`] levels. If a member is repeated, the last one wins.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    Value::parse(text.as_bytes(), ()).map_err(|error| error.to_string())
}

// serde_json's own limit must be the same as ours.
const _: () = assert!(DEPTH == 128);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> String {
        canonical(&parse(text).unwrap()).unwrap()
    }

    #[test]
    fn numbers_are_rendered_as_rfc_8785_appendix_b_lists_them() {
        for (bits, text) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(ecmascript(f64::from_bits(bits)), text, "{bits:#x}");
        }
    }

    #[test]
    fn members_are_sorted_by_utf_16_code_units() {
        // The example of RFC 8785, 3.2.3: an emoji's surrogates sort before U+FB33.
        assert_eq!(
            json(
                r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
                "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
                "\u00f6":"Latin Small Letter O With Diaeresis"}"#
            ),
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
             \"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\
             \"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
        );
    }

    #[test]
    fn strings_escape_what_the_scheme_lists() {
        assert_eq!(
            json(r#""\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/\b\t\f\r\u007f""#),
            "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\\b\\t\\f\\r\u{7f}\""
        );
    }

    #[test]
    fn the_example_of_rfc_8785_is_reproduced() {
        assert_eq!(
            json(
                r#"{ "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "literals": [null, true, false], "empty": [{}, []] }"#
            ),
            r#"{"empty":[{},[]],"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}"#
        );
    }

    #[test]
    fn what_is_not_json_says_so() {
        insta::assert_snapshot!(parse("{a: 1}").unwrap_err(), @"not JSON: key must be a string at line 1 column 2");
        assert!(parse(&"[".repeat(1000)).is_err());
        assert!(parse("").is_err());
        assert!(parse("1 2").is_err());
    }

    proptest! {
        #[test]
        fn every_double_reads_back(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(ecmascript(number).parse::<f64>(), Ok(number));
        }

        #[test]
        fn every_string_reads_back(text in "\\PC*|[\\x00-\\x7f]*") {
            let quoted = canonical(&Value::from(text.as_str())).unwrap();
            prop_assert_eq!(parse(&quoted), Ok(Value::from(text.as_str())));
        }
    }
}
