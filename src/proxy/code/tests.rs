use super::*;
use crate::language::provider::Contract;

const PAGE: &str = include_str!("../../../docs/failures.md");

#[test]
fn the_page_of_failures_has_the_table() {
    for (code, Meaning { status, word, grpc, help, .. }) in TABLE {
        let (status, grpc) = (status.as_u16(), grpc.name());
        let row = format!("| `{code}` | {status} | `{word}` | {grpc} | {help} |");
        assert!(PAGE.contains(&row), "docs/failures.md lacks this row:\n{row}");
    }
    let rows =
        PAGE.lines().filter(|line| line.starts_with("| `Pro") || line.starts_with("| `System."));
    assert_eq!(rows.count(), TABLE.len(), "docs/failures.md has rows that the table lacks");
}

#[test]
fn the_http_provider_s_document_has_its_codes() {
    let document = Contract::parse(include_str!("../provider/http/http.v1.json")).unwrap();
    let own = TABLE.iter().map(|(code, _)| *code);
    let own = own.filter(|code| code.starts_with("Provider.Call.Http."));
    let grpc = (1..=16_u8).filter_map(|number| Status::read(number.to_string().as_bytes()));
    let emitted: Vec<_> = own.chain(grpc.map(Status::code)).collect();
    assert_eq!(document.closed, emitted);
}

#[test]
fn a_code_says_how_it_is_answered() {
    let shown = |code| {
        let Meaning { status, grpc, .. } = meaning(code);
        (status.as_u16(), grpc.number())
    };
    for (code, http, grpc) in [
        (timeout::EXCEEDED, 504, 4),
        (CONNECTION_FAILED, 502, 14),
        (CONNECTION_CLOSED, 502, 14),
        (BODY_TOO_LARGE, 500, 8),
        (BODY_NOT_BUFFERED, 503, 8),
        (system::CANCELLED, 503, 14),
        ("Provider.Call.Http.Grpc.Aborted", 500, 10),
        (NO_ROUTE, 404, 12),
        ("Other.Code", 500, 2),
    ] {
        assert_eq!(shown(code), (http, grpc), "{code}");
    }
}

#[test]
fn another_status_has_another_of_grpc_unless_the_code_has_its_own() {
    let at = |code, status| meaning(code).at(status).grpc;
    assert_eq!(at(BODY_TOO_LARGE, StatusCode::PAYLOAD_TOO_LARGE), Status::RESOURCE_EXHAUSTED);
    let unknown = Status::of_http(StatusCode::URI_TOO_LONG);
    assert_eq!(at(BAD_REQUEST, StatusCode::URI_TOO_LONG), unknown);
    assert_ne!(meaning(BAD_REQUEST).grpc, unknown);
}
