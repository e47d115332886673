//! The texts that the temporal profile reads and writes.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn nanos(text: &str) -> Option<i128> {
    Span::parse(text).map(Span::as_nanos)
}

#[test]
fn every_form_of_a_duration_is_read() {
    for (text, expected) in [
        ("PT30S", 30 * SECOND),
        ("PT1H", HOUR),
        ("P1D", DAY),
        ("PT0S", 0),
        ("P0D", 0),
        ("P2W", 14 * DAY),
        ("P0.5W", 84 * HOUR),
        ("P1Y", 365 * DAY),
        ("P1M", 30 * DAY),
        ("P1Y2M3DT4H5M6S", (365 + 60 + 3) * DAY + 4 * HOUR + 5 * MINUTE + 6 * SECOND),
        ("PT0.5S", SECOND / 2),
        ("PT0,5S", SECOND / 2),
        ("PT1.5H", 90 * MINUTE),
        ("P1DT0.5M", DAY + 30 * SECOND),
        ("PT0.1234567891S", 123_456_789),
        ("PT36H", 36 * HOUR),
        ("-PT30S", -30 * SECOND),
        ("-P1W", -7 * DAY),
        ("PT00001S", SECOND),
    ] {
        assert_eq!(nanos(text), Some(expected), "{text}");
    }
}

#[test]
fn what_is_not_a_duration_is_refused() {
    for text in [
        "",
        "P",
        "PT",
        "-P",
        "-PT",
        "1S",
        "P1S",
        "PT1D",
        "P1",
        "PT1",
        "P1DT",
        "PT1S ",
        " PT1S",
        "PT1Sx",
        "PT1S1M",
        "P1D1Y",
        "PT1M1H",
        "P1W1D",
        "P1Y2W",
        "P1WT1H",
        "PT.5S",
        "PT5.S",
        "PT1.5H30M",
        "P1.5DT1H",
        "PT1.2.3S",
        "+PT1S",
        "--PT1S",
        "P-1D",
        "pt1s",
        "PTS",
        "PT1S1S",
        "PT١S",
        "P1DT1",
        "TP1D",
        "PTT1S",
    ] {
        assert_eq!(nanos(text), None, "{text:?}");
    }
}

#[test]
fn a_duration_beyond_128_bits_saturates() {
    let long = format!("P{}Y", "9".repeat(60));
    assert_eq!(nanos(&long), Some(i128::MAX));
    assert_eq!(Span::parse(&long).unwrap().to_duration(), Duration::MAX);
    assert_eq!(nanos(&format!("-P{}YT1S", "9".repeat(60))), Some(-i128::MAX));
    assert_eq!(nanos(&format!("PT0.{}S", "9".repeat(500))), Some(999_999_999));
}

#[test]
fn the_canonical_form_is_that_of_duration_to_iso8601() {
    for (nanos, text) in [
        (90 * MINUTE, "PT1H30M"),
        (26 * HOUR, "PT26H"),
        (SECOND / 2, "PT0.5S"),
        (0, "PT0S"),
        (-30 * SECOND, "-PT30S"),
        (HOUR + 1, "PT1H0.000000001S"),
        (MINUTE, "PT1M"),
        (-(HOUR + 1_500_000_000), "-PT1H1.5S"),
    ] {
        assert_eq!(Span::from_nanos(nanos).to_string(), text);
    }
}

#[test]
fn a_negative_span_means_no_wait() {
    assert_eq!(Span::from_nanos(-1).to_duration(), Duration::ZERO);
    assert_eq!(Span::from_nanos(1_500_000_000).to_duration(), Duration::from_millis(1500));
    assert_eq!(Span::from_duration(Duration::from_millis(2)).as_nanos(), 2_000_000);
}

#[test]
fn timestamps_are_read_with_offsets_and_fractions() {
    for (text, shown) in [
        ("2024-01-15T09:30:00Z", "2024-01-15T09:30:00Z"),
        ("2024-01-15t09:30:00z", "2024-01-15T09:30:00Z"),
        ("2024-01-15T09:30:00.120Z", "2024-01-15T09:30:00.12Z"),
        ("2024-01-15T09:30:00.1234567899Z", "2024-01-15T09:30:00.123456789Z"),
        ("2024-01-15T12:30:00+02:00", "2024-01-15T10:30:00Z"),
        ("2024-01-15T12:30:00-00:00", "2024-01-15T12:30:00Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2017-01-01T01:59:60.5+02:00", "2017-01-01T00:00:00.5Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
    ] {
        let timestamp = Timestamp::parse(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(timestamp.to_string(), shown, "{text}");
    }
    assert_eq!(Timestamp::parse("1970-01-01T00:00:01Z").unwrap().as_nanos(), SECOND);
}

#[test]
fn what_is_not_a_timestamp_is_refused() {
    for text in [
        "",
        "2024-01-15",
        "2024-01-15T09:30:00",
        "2024-01-15 09:30:00Z",
        "2024-01-15T09:30Z",
        "2024-13-15T09:30:00Z",
        "2023-02-29T09:30:00Z",
        "2024-01-15T24:00:00Z",
        "2024-01-15T09:60:00Z",
        "2024-01-15T09:30:61Z",
        "2024-01-15T09:30:60Z",
        "2024-01-15T09:30:00.Z",
        "2024-01-15T09:30:00+24:00",
        "2024-01-15T09:30:00+02:60",
        "2024-01-15T09:30:00+0200",
        "2024-01-15T09:30:00Z ",
        "24-01-15T09:30:00Z",
        "+2024-01-15T09:30:00Z",
        "2024-1-15T09:30:00Z",
    ] {
        assert_eq!(Timestamp::parse(text), None, "{text:?}");
    }
}

#[test]
fn an_instant_beyond_the_calendar_is_shown_as_its_end() {
    assert_eq!(Timestamp::from_nanos(i128::MAX).to_string(), "9999-12-31T23:59:59.999999999Z");
    assert_eq!(Timestamp::from_nanos(i128::MIN).to_string(), "0000-01-01T00:00:00Z");
}

proptest! {
    #[test]
    fn a_span_survives_its_text(nanos in -i128::MAX..i128::MAX) {
        let span = Span::from_nanos(nanos);
        prop_assert_eq!(Span::parse(&span.to_string()), Some(span));
    }

    #[test]
    fn a_timestamp_survives_its_text(
        nanos in -62_167_219_200 * SECOND..253_402_300_800 * SECOND,
    ) {
        let timestamp = Timestamp::from_nanos(nanos);
        prop_assert_eq!(Timestamp::parse(&timestamp.to_string()), Some(timestamp));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "-?P?[0-9.,YMWDTHSZ:+-]{0,40}|\\PC{0,40}") {
        let _ = (Span::parse(&text), Timestamp::parse(&text));
    }

    #[test]
    fn offsets_shift_the_instant(hours in 0_i128..24, minutes in 0_i128..60) {
        let text = format!("2024-01-15T00:00:00-{hours:02}:{minutes:02}");
        let base = Timestamp::parse("2024-01-15T00:00:00Z").unwrap().as_nanos();
        let shifted = Timestamp::parse(&text).unwrap().as_nanos();
        prop_assert_eq!(shifted - base, hours * HOUR + minutes * MINUTE);
    }
}
