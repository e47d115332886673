//! A mix of responses, as written on the command line: `200@20ms:90,503,retry-after=2:7,reset:3`.

use super::argument::ArgumentError;
use super::response::{self, Labelled};

/// How many responses a mix may have.
const MOST: usize = 100;

/// Each response with its weight. A comma separates two responses if a weight stands before it; others belong to the
/// response.
pub(super) fn read(written: &str) -> Result<Vec<(Labelled, f64)>, ArgumentError> {
    let mut mix = Vec::new();
    let mut from = 0;
    while let Some(rest) = written.get(from..) {
        let length = end(rest);
        let text = rest.get(..length).unwrap_or(rest);
        mix.push(part(text, from, mix.len() + 1)?);
        from += length + 1;
        if from > written.len() {
            break;
        }
    }
    if mix.len() > MOST {
        return Err(ArgumentError::at(0, format!("a mix has at most {MOST} responses")));
    }
    Ok(mix)
}

/// The end of the first response with its weight.
fn end(text: &str) -> usize {
    let weighed = |(comma, _): &(usize, &str)| {
        text.get(..*comma)
            .and_then(|before| before.rsplit_once(':'))
            .is_some_and(|(_, last)| weight(last).is_some())
    };
    text.match_indices(',').find(weighed).map_or(text.len(), |(comma, _)| comma)
}

fn part(text: &str, from: usize, number: usize) -> Result<(Labelled, f64), ArgumentError> {
    let found = text.rsplit_once(':').and_then(|(what, last)| Some((what, weight(last)?)));
    let Some((what, weight)) = found else {
        let message =
            format!("`{text}` has no weight; write `{text}:10`, or any number above zero");
        return Err(ArgumentError::at(from, message));
    };
    let read = response::read(what);
    let response = read.map_err(|wrong| ArgumentError { offset: from + wrong.offset, ..wrong })?;
    if response.times != 1 {
        let message = "a mix draws: how often it comes is its weight";
        return Err(ArgumentError::at(from + what.find('*').unwrap_or_default(), message));
    }
    let at = format!("--mix #{number}");
    Ok((Labelled { at, written: text.to_owned(), response }, weight))
}

fn weight(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|weight: &f64| plain && *weight > 0.0 && weight.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_belong_to_a_response_until_its_weight() {
        let mix = read("200@20ms..80ms:90,429,retry-after=2,x-a=b:7.5,reset:3").unwrap();
        let mix: Vec<_> = mix.iter().map(|(part, weight)| (&*part.written, *weight)).collect();
        assert_eq!(
            mix,
            [("200@20ms..80ms:90", 90.0), ("429,retry-after=2,x-a=b:7.5", 7.5), ("reset:3", 3.0)]
        );
        for (text, offset, told) in [
            ("200", 0, "`200` has no weight; write `200:10`"),
            ("200:0", 0, "has no weight"),
            ("200:90,", 7, "has no weight"),
            ("200:1,503*2:1", 9, "is its weight"),
            ("200:1,what:1", 6, "`what` is no response"),
        ] {
            let wrong = read(text).unwrap_err();
            assert_eq!(wrong.offset, offset, "{text}");
            assert!(wrong.message.contains(told), "{text}: {}", wrong.message);
        }
    }
}
