//! What somebody meant who wrote no ISO 8601 duration: `30s`, `500 ms`, `1h30m`, `PT30`.

use super::Span;

/// Units by which others write durations, each with its designator and how many make one of it.
const UNITS: [(&str, &str, f64); 6] = [
    ("ms", "S", 1000.0),
    ("msec", "S", 1000.0),
    ("s", "S", 1.0),
    ("m", "M", 1.0),
    ("h", "H", 1.0),
    ("d", "D", 1.0),
];

/// Longer words for the same.
const WORDS: [(&str, &str); 12] = [
    ("milliseconds", "ms"),
    ("millis", "ms"),
    ("seconds", "s"),
    ("second", "s"),
    ("secs", "s"),
    ("sec", "s"),
    ("minutes", "m"),
    ("minute", "m"),
    ("mins", "m"),
    ("min", "m"),
    ("hours", "h"),
    ("hour", "h"),
];

/// The duration that `text` probably means, as it is to be written.
///
/// ```
/// use mwl_proxy::language::temporal::meant_duration;
///
/// assert_eq!(meant_duration("30s").as_deref(), Some("PT30S"));
/// assert_eq!(meant_duration("soon"), None);
/// ```
pub fn meant_duration(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let plain = text.trim_start_matches(['p', 't']);
    let parts = parts(plain)?;
    let (mut date, mut time) = (String::new(), String::new());
    for (number, unit) in parts {
        let (_, designator, divisor) = UNITS.iter().find(|(name, ..)| *name == unit)?;
        let number =
            if *divisor > 1.0 { (number / divisor).to_string() } else { number.to_string() };
        let part = if *designator == "D" { &mut date } else { &mut time };
        part.push_str(&number);
        part.push_str(designator);
    }
    let meant = match time.as_str() {
        "" => format!("P{date}"),
        time => format!("P{date}T{time}"),
    };
    Span::parse(&meant).map(|_| meant)
}

/// The number of months, if a duration is written in months alone: `P5M`, by which five minutes are meant more often.
pub fn months(text: &str) -> Option<&str> {
    let number = text.strip_prefix('P')?.strip_suffix('M')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// The numbers of `text`, each with its unit. A single number without one counts seconds.
fn parts(text: &str) -> Option<Vec<(f64, &str)>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let unit = WORDS.iter().find(|(word, _)| *word == unit).map_or(unit, |(_, unit)| unit);
        parts.push((number, if unit.is_empty() { "s" } else { unit }));
        rest = after.trim_start();
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_stand_before_a_t() {
        for (written, number) in
            [("P5M", Some("5")), ("PT5M", None), ("P1Y5M", None), ("PM", None), ("5M", None)]
        {
            assert_eq!(months(written), number, "{written}");
        }
    }

    #[test]
    fn what_others_write_is_understood() {
        for (written, meant) in [
            ("30s", Some("PT30S")),
            ("30", Some("PT30S")),
            ("500ms", Some("PT0.5S")),
            ("1.5 s", Some("PT1.5S")),
            ("1h30m", Some("PT1H30M")),
            ("5 minutes", Some("PT5M")),
            ("2d", Some("P2D")),
            ("1d12h", Some("P1DT12H")),
            ("PT30", Some("PT30S")),
            ("pt30s", Some("PT30S")),
            ("P30S", Some("PT30S")),
            ("30S", Some("PT30S")),
            ("soon", None),
            ("", None),
            ("-5", None),
            ("5 weeks or so", None),
        ] {
            assert_eq!(meant_duration(written).as_deref(), meant, "{written}");
        }
    }
}
