use super::*;
use std::fmt::Write;

/// The octets that `text` writes in hexadecimal.
fn octets(text: &str) -> Bytes {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

/// What a block has, each field as a line.
fn decode(decoder: &mut Decoder, block: &Bytes) -> Result<String, CompressionError> {
    let mut text = String::new();
    decoder.decode(block, |field| match field {
        Ok(field) => line(&mut text, &field.name, &field.value),
        Err(malformed) => writeln!(text, "{malformed:?}").unwrap(),
    })?;
    Ok(text)
}

fn line(text: &mut String, name: &Name, value: &HeaderValue) {
    let mark = if value.is_sensitive() { " (never indexed)" } else { "" };
    writeln!(text, "{}: {}{mark}", name.as_str(), value.to_str().unwrap()).unwrap();
}

/// The table's entries from the newest, each as a line, and what they count.
fn table(decoder: &Decoder) -> (String, usize) {
    let mut text = String::new();
    for entry in &decoder.entries {
        line(&mut text, entry.name.as_ref().unwrap(), entry.value.as_ref().unwrap());
    }
    (text, decoder.size)
}

/// Decodes the blocks of one connection, and checks each one's fields, and the table after it.
fn check(mut decoder: Decoder, blocks: &[(&str, &str, &str, usize)]) {
    for (block, fields, entries, size) in blocks {
        assert_eq!(decode(&mut decoder, &octets(block)).as_deref(), Ok(*fields));
        assert_eq!(table(&decoder), ((*entries).to_owned(), *size));
    }
}

fn fails(block: &str) {
    let block = octets(block);
    let result = decode(&mut Decoder::new(4096), &block);
    assert_eq!(result, Err(CompressionError), "{block:?}");
}

#[test]
fn literal_with_indexing_of_rfc_7541_c_2_1() {
    let field = "custom-key: custom-header\n";
    let block = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check(Decoder::new(4096), &[(block, field, field, 55)]);
}

#[test]
fn literal_without_indexing_of_rfc_7541_c_2_2() {
    let block = "040c 2f73 616d 706c 652f 7061 7468";
    check(Decoder::new(4096), &[(block, ":path: /sample/path\n", "", 0)]);
}

#[test]
fn literal_never_indexed_of_rfc_7541_c_2_3() {
    let block = "1008 7061 7373 776f 7264 0673 6563 7265 74";
    check(Decoder::new(4096), &[(block, "password: secret (never indexed)\n", "", 0)]);
}

#[test]
fn indexed_field_of_rfc_7541_c_2_4() {
    check(Decoder::new(4096), &[("82", ":method: GET\n", "", 0)]);
}

/// The fields and tables of RFC 7541, C.3 and C.4, for blocks of these octets.
fn check_requests(blocks: [&str; 3]) {
    const FIRST: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
    const SECOND: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n";
    const THIRD: &str = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
        custom-key: custom-value\n";
    const TABLE: &str =
        "custom-key: custom-value\ncache-control: no-cache\n:authority: www.example.com\n";
    check(
        Decoder::new(4096),
        &[
            (blocks[0], FIRST, ":authority: www.example.com\n", 57),
            (blocks[1], SECOND, "cache-control: no-cache\n:authority: www.example.com\n", 110),
            (blocks[2], THIRD, TABLE, 164),
        ],
    );
}

#[test]
fn requests_of_rfc_7541_c_3() {
    check_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn requests_in_huffmans_code_of_rfc_7541_c_4() {
    check_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

/// The fields and tables of RFC 7541, C.5 and C.6, for blocks of these octets. The table may count 256 octets.
fn check_responses(blocks: [&str; 3]) {
    const FIRST: &str = ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
        location: https://www.example.com\n";
    const FIRST_TABLE: &str = "location: https://www.example.com\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
        cache-control: private\n:status: 302\n";
    const SECOND: &str = ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
        location: https://www.example.com\n";
    const SECOND_TABLE: &str = ":status: 307\nlocation: https://www.example.com\n\
        date: Mon, 21 Oct 2013 20:13:21 GMT\ncache-control: private\n";
    const THIRD: &str = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
        location: https://www.example.com\ncontent-encoding: gzip\n\
        set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n";
    const THIRD_TABLE: &str = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n\
        content-encoding: gzip\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n";
    let mut decoder = Decoder::new(4096);
    decoder.resize(256);
    check(
        decoder,
        &[
            (blocks[0], FIRST, FIRST_TABLE, 222),
            (blocks[1], SECOND, SECOND_TABLE, 222),
            (blocks[2], THIRD, THIRD_TABLE, 215),
        ],
    );
}

#[test]
fn responses_of_rfc_7541_c_5() {
    check_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
         3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
         7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
         6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn responses_in_huffmans_code_of_rfc_7541_c_6() {
    check_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
         1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
         e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}

#[test]
fn the_static_table_has_the_names_and_values_that_it_says() {
    let mut text = String::new();
    for index in 1..=61 {
        let block = Bytes::from(vec![0x80 | index]);
        text += &decode(&mut Decoder::new(4096), &block).unwrap();
    }
    assert_eq!(text.lines().count(), 61);
    for entry in &known::TABLE {
        let name = entry.name.as_ref().unwrap();
        let value = entry.value.as_ref().unwrap();
        assert_eq!(entry.name_length, name.as_str().len());
        assert_eq!(entry.size, name.as_str().len() + value.len() + 32);
    }
    fails("be");
}

#[test]
fn an_index_that_no_entry_has_is_an_error() {
    fails("80");
    fails("be");
    fails("7e 00");
    fails("ff 00");
    fails("0f 2f 01 61");
}

#[test]
fn an_integer_of_more_than_five_octets_is_an_error() {
    fails("ff ff ff ff ff ff ff ff ff ff");
    fails("3f 80 80 80 80 00");
    fails("00 7f 80 80 80 80 80 01");
    // Five are well, though no integer of ours needs them.
    assert_eq!(decode(&mut Decoder::new(4096), &octets("3f 80 80 80 00")), Ok(String::new()));
}

#[test]
fn a_block_that_ends_too_early_is_an_error() {
    let block =
        octets("828741 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff 4008 25a8 49e9 5ba9 7d7f 03 616263 ff01");
    let whole: Vec<usize> = (0..=block.len())
        .filter(|&end| decode(&mut Decoder::new(4096), &block.slice(..end)).is_ok())
        .collect();
    assert_eq!(whole, [0, 1, 2, 16, 30]);
    for block in
        ["ff", "ff 80", "40", "40 0a 61", "41", "41 02 61", "00 01 61", "10 7f", "3f", "3f e1"]
    {
        fails(block);
    }
}

#[test]
fn a_size_beyond_ours_is_an_error() {
    let size = |size: &str| decode(&mut Decoder::new(8192), &octets(size));
    assert_eq!(size("3f e1 3f"), Ok(String::new()));
    assert_eq!(size("3f e2 3f"), Err(CompressionError));
    // 4,096 is allowed before the other side knows ours.
    let mut small = Decoder::new(0);
    assert_eq!(decode(&mut small, &octets("3f e1 1f")), Ok(String::new()));
    assert_eq!(decode(&mut small, &octets("3f e2 1f")), Err(CompressionError));
}

#[test]
fn a_size_after_a_field_is_an_error() {
    fails("82 20");
    fails("00 01 61 01 62 3f e1 1f");
    assert_eq!(
        decode(&mut Decoder::new(4096), &octets("20 3f e1 1f 82")).unwrap(),
        ":method: GET\n"
    );
}

#[test]
fn a_smaller_table_forgets_the_oldest() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &octets("40 01 61 01 78  40 01 62 01 78  40 01 63 01 78")).unwrap();
    assert_eq!(table(&decoder), ("c: x\nb: x\na: x\n".to_owned(), 102));
    // 68 octets: two entries.
    decode(&mut decoder, &octets("3f 25")).unwrap();
    assert_eq!(table(&decoder), ("c: x\nb: x\n".to_owned(), 68));
    decode(&mut decoder, &octets("20")).unwrap();
    assert_eq!(table(&decoder), (String::new(), 0));
    assert_eq!(decoder.entries.capacity(), 0, "no memory is kept");
    decode(&mut decoder, &octets("40 01 61 01 78")).unwrap();
    assert_eq!(table(&decoder), (String::new(), 0));
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &octets("3f 25  40 01 61 01 78")).unwrap();
    let mut large = b"\x40\x01b\x3c".to_vec();
    large.extend([b'y'; 60]);
    let fields = decode(&mut decoder, &large.into()).unwrap();
    assert_eq!(fields, format!("b: {}\n", "y".repeat(60)));
    assert_eq!(table(&decoder), (String::new(), 0));
}

#[test]
fn a_name_may_come_from_the_entry_that_the_new_one_evicts() {
    let mut decoder = Decoder::new(4096);
    // 40 octets: one entry.
    decode(&mut decoder, &octets("3f 09  40 01 61 01 78")).unwrap();
    assert_eq!(decode(&mut decoder, &octets("7e 02 79 7a be")).unwrap(), "a: yz\na: yz\n");
    assert_eq!(table(&decoder), ("a: yz\n".to_owned(), 35));
}

#[test]
fn a_malformed_field_keeps_the_table_right() {
    let mut decoder = Decoder::new(4096);
    let first = octets(
        "40 01 41 01 78  40 02 3a 61 01 78  40 01 61 01 00  40 00 01 78  40 01 62 01 79  41 01 0a  00 01 22 00",
    );
    let fields = decode(&mut decoder, &first).unwrap();
    let malformed = "UppercaseOrBadName\nUnknownPseudo\nBadValue\nUppercaseOrBadName\nb: y\nBadValue\n\
        UppercaseOrBadName\n";
    assert_eq!(fields, malformed);
    assert_eq!(decoder.size, 34 + 35 + 34 + 33 + 34 + 43);
    // From the newest: a bad value, a field, no name, a bad value whose name is well, a pseudo-header, a capital.
    let again = decode(&mut decoder, &octets("be bf c0 c1 c2 c3")).unwrap();
    let malformed =
        "BadValue\nb: y\nUppercaseOrBadName\nBadValue\nUnknownPseudo\nUppercaseOrBadName\n";
    assert_eq!(again, malformed);
    assert_eq!(
        decode(&mut decoder, &octets("0f 32 01 7a  0f 34 01 7a")).unwrap(),
        "a: z\nUppercaseOrBadName\n"
    );
}

#[test]
fn names_are_tokens_in_small_letters() {
    let name = |name: &[u8]| parse_name(name).map(|name| name.as_str().to_owned());
    for well in ["a", "x-0", "!#$%&'*+-.^_`|~", "content-type"] {
        assert_eq!(name(well.as_bytes()).as_deref(), Ok(well));
    }
    let long = "x".repeat(100);
    assert_eq!(name(long.as_bytes()), Ok(long));
    for bad in ["", "A", "aB", " a", "a ", "a:", "\"", "a\0", "a\n", "é", "(", "@"] {
        assert_eq!(name(bad.as_bytes()), Err(Malformed::UppercaseOrBadName), "{bad:?}");
    }
    let long = "x".repeat(99) + "X";
    assert_eq!(name(long.as_bytes()), Err(Malformed::UppercaseOrBadName));
    for unknown in [":", ":a", ":Path", ":path ", "::path"] {
        assert_eq!(name(unknown.as_bytes()), Err(Malformed::UnknownPseudo), "{unknown:?}");
    }
    assert_eq!(name(b":protocol").as_deref(), Ok(":protocol"));
}

#[test]
fn values_share_the_blocks_memory_and_entries_dont() {
    let block = octets("04 03 2f 61 62  41 03 61 2e 62");
    let mut values = Vec::new();
    let mut decoder = Decoder::new(4096);
    decoder.decode(&block, |field| values.push(field.unwrap().value)).unwrap();
    let inside = |value: &HeaderValue| block.as_ptr_range().contains(&value.as_bytes().as_ptr());
    assert_eq!(values.iter().map(inside).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn nothing_is_allocated_before_the_first_entry() {
    let mut decoder = Decoder::new(65_536);
    decode(&mut decoder, &octets("82 86 84 04 03 2f 61 62")).unwrap();
    assert_eq!(decoder.entries.capacity(), 0);
}

#[test]
fn the_table_never_counts_more_than_it_may() {
    let mut decoder = Decoder::new(4096);
    for length in (0..127_u8).cycle().take(5000) {
        let mut block = vec![0x40, 0x01, b'a', length];
        block.extend(vec![b'v'; length.into()]);
        decoder.decode(&block.into(), |field| assert!(field.is_ok())).unwrap();
        assert!(decoder.size <= 4096 && decoder.entries.len() <= 128);
        assert_eq!(decoder.size, decoder.entries.iter().map(|entry| entry.size).sum::<usize>());
    }
}
