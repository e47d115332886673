use super::*;

fn decoded(code: &[u8]) -> Option<Vec<u8>> {
    decode(code, <[u8]>::to_vec).ok()
}

/// The code of `text`, made bit by bit.
fn code_of(text: &[u8]) -> Vec<u8> {
    let mut bits: Vec<u32> = Vec::new();
    for &octet in text {
        let Word { bits: word, length } = word(octet);
        bits.extend((0..length).rev().map(|place| word >> place & 1));
    }
    bits.resize(bits.len().next_multiple_of(8), 1);
    let octet =
        |bits: &[u32]| bits.iter().fold(0, |octet, bit| octet << 1 | u8::try_from(*bit).unwrap());
    bits.chunks(8).map(octet).collect()
}

fn encoded(text: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(text, encoded_length(text), &mut out);
    out.to_vec()
}

#[test]
fn words_are_those_of_rfc_7541_appendix_b() {
    let words = [
        (0, 0x1ff8, 13),
        (10, 0x3fff_fffc, 30),
        (32, 0x14, 6),
        (48, 0x0, 5),
        (65, 0x21, 6),
        (92, 0x7_fff0, 19),
        (126, 0x1ffd, 13),
        (127, 0xfff_fffc, 28),
        (128, 0xf_ffe6, 20),
        (199, 0x1ff_ffec, 25),
        (217, 0x1f_ffe5, 21),
        (249, 0xfff_fffe, 28),
        (255, 0x3ff_ffee, 26),
        (256, 0x3fff_ffff, 30),
    ];
    for (symbol, bits, length) in words {
        let word = WORDS[symbol];
        assert_eq!((word.bits, word.length), (bits, length), "{symbol}");
    }
}

#[test]
fn all_pairs_of_octets_come_back() {
    for pair in 0..=u16::MAX {
        let text = pair.to_be_bytes();
        let code = code_of(&text);
        assert_eq!(encoded(&text), code);
        assert_eq!(decoded(&code).as_deref(), Some(&text[..]), "{pair:#x}");
    }
}

#[test]
fn texts_of_all_lengths_come_back() {
    let all: Vec<u8> = (0..=u8::MAX).chain(*b"/a/path?with=a&query").collect();
    for length in 0..all.len() {
        for text in [&all[..length], &all[all.len() - length..]] {
            let code = code_of(text);
            assert_eq!(encoded(text), code);
            assert_eq!(decoded(&code).as_deref(), Some(text));
        }
    }
    let zeros = vec![b'0'; 100_000];
    assert_eq!(decoded(&encoded(&zeros)), Some(zeros));
}

#[test]
fn more_than_seven_bits_of_filling_are_an_error() {
    // `0` has five bits, so three fill up the octet.
    assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
    assert_eq!(decoded(&[0b0000_0111, 0xff]), None);
    assert_eq!(decoded(&[0xff]), None);
    // `&` has eight bits.
    assert_eq!(decoded(&[0xf8]).as_deref(), Some(&b"&"[..]));
    assert_eq!(decoded(&[0xf8, 0xff]), None);
    for ones in 1..40 {
        assert_eq!(decoded(&vec![0xff; ones]), None);
        assert_eq!(decoded(&[&b"\x07"[..], &vec![0xff; ones]].concat()), None);
    }
}

#[test]
fn filling_that_is_not_all_ones_is_an_error() {
    for filling in 0..0b111 {
        assert_eq!(decoded(&[filling]), None);
    }
}

#[test]
fn the_end_of_a_string_is_an_error() {
    // 30 ones at each place of an octet.
    for before in 0..8 {
        let text = vec![b'0'; before];
        let bits = before * 5;
        let mut code = vec![0; (bits + 30).div_ceil(8) + 2];
        for bit in bits..code.len() * 8 {
            code[bit / 8] |= 0x80 >> (bit % 8);
        }
        assert_eq!(decoded(&code), None, "{text:?}");
        code.truncate((bits + 30).div_ceil(8));
        assert_eq!(decoded(&code), None, "{text:?}");
    }
}

#[test]
fn what_is_cut_off_is_an_error_or_shorter() {
    let text = b"a text with \\ and \xff and ~";
    let code = code_of(text);
    for end in 0..code.len() {
        if let Some(short) = decoded(&code[..end]) {
            assert!(text.starts_with(&short) && short.len() < text.len());
        }
    }
}

#[test]
fn strings_are_written_in_code_where_that_is_shorter() {
    let written = |text: &[u8]| {
        let mut out = BytesMut::new();
        write_string(text, &mut out);
        out.to_vec()
    };
    assert_eq!(
        written(b"www.example.com"),
        *b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"
    );
    assert_eq!(written(b""), [0]);
    assert_eq!(written(b"{}~"), *b"\x03{}~");
    assert_eq!(written(b"&"), *b"\x01&");
}
