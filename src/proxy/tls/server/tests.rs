use super::*;
use crate::proxy::tls::testing::{Authority, Issued};
use crate::proxy::tls::{Certificates, Key};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

const LIMIT: Duration = Duration::from_secs(5);

fn identity(issued: &Issued) -> Identity {
    let certificates = Certificates::read(&issued.chain(), Timestamp::from_nanos(0)).unwrap();
    Identity::pair(certificates, &Key::read(&issued.key()).unwrap()).unwrap()
}

/// A client's configuration: which authority it trusts, its certificate, and the protocols that it offers.
fn client(trusts: &Authority, shows: Option<&Issued>, offers: &[&[u8]]) -> ClientConfig {
    let roots = Roots::read(&trusts.pem()).unwrap().store;
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match shows {
        Some(issued) => builder.with_client_cert_resolver(identity(issued).resolver()),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = offers.iter().map(|offer| offer.to_vec()).collect();
    config
}

/// The result of a handshake on the server's side.
async fn meet(
    server: &ServerTls,
    client: ClientConfig,
) -> Result<AcceptedConnection<DuplexStream>, HandshakeError> {
    let (near, far) = duplex(64 * 1024);
    let name = ServerName::try_from("a.test").unwrap();
    let connecting = TlsConnector::from(Arc::new(client)).connect(name, near);
    let (_client, accepted) = tokio::join!(connecting, server.accept(far, LIMIT));
    accepted
}

fn told(met: Result<AcceptedConnection<DuplexStream>, HandshakeError>) -> String {
    let refused = met.err().unwrap();
    format!("{}: {refused}", refused.reason.as_str())
}

#[tokio::test]
async fn the_two_sides_choose_the_protocol() {
    let authority = Authority::new();
    let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
    let offers: [(&[&[u8]], bool); 4] =
        [(&[HTTP_1_1, H2], true), (&[H2], true), (&[HTTP_1_1], false), (&[], false)];
    for (offers, http2) in offers {
        let met = meet(&server, client(&authority, None, offers)).await;
        assert_eq!(met.unwrap().http2, http2, "{offers:?}");
    }
    let met = meet(&server, client(&authority, None, &[b"spdy/3"])).await;
    insta::assert_snapshot!(told(met), @"incompatible: peer doesn't support any known protocol");
}

#[tokio::test]
async fn the_fastest_suite_is_chosen_whatever_the_client_prefers() {
    let authority = Authority::new();
    let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
    let mut reversed = rustls::crypto::ring::default_provider();
    reversed.cipher_suites.reverse();
    let config = ClientConfig::builder_with_provider(Arc::new(reversed))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(Roots::read(&authority.pem()).unwrap().store)
        .with_no_client_auth();
    let met = meet(&server, config).await.unwrap();
    let chosen = met.io.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(chosen, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
}

#[tokio::test]
async fn a_client_must_show_a_certificate_where_one_is_wanted() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let clients = Roots::read(&authority.pem()).unwrap();
    let server = identity(&authority.issue(&["a.test"]));
    let server = ServerTls::new(&server, Some(&clients)).unwrap();
    let known = authority.issue(&["client.test"]);
    meet(&server, client(&authority, Some(&known), &[])).await.unwrap();
    let met = meet(&server, client(&authority, None, &[])).await;
    insta::assert_snapshot!(told(met), @"noCertificate: the client shows no certificate, and `clientCa` wants one");
    let unknown = other.issue(&["client.test"]);
    let met = meet(&server, client(&authority, Some(&unknown), &[])).await;
    insta::assert_snapshot!(told(met), @"badCertificate: invalid peer certificate: UnknownIssuer");
    let met = meet(&server, client(&other, Some(&known), &[])).await;
    insta::assert_snapshot!(told(met), @"alert: received fatal alert: UnknownCA");
}

#[tokio::test]
async fn what_is_no_tls_is_told_an_alert_and_the_end() {
    let authority = Authority::new();
    let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
    let (mut near, far) = duplex(1024);
    near.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap();
    let met = server.accept(far, LIMIT).await;
    insta::assert_snapshot!(told(met), @"notTls: what came is no TLS: plain HTTP, perhaps");
    let mut alert = Vec::new();
    near.read_to_end(&mut alert).await.unwrap();
    // A record of type `alert`.
    assert_eq!(alert.first(), Some(&21));
    let (near, far) = duplex(1024);
    drop(near);
    insta::assert_snapshot!(told(server.accept(far, LIMIT).await), @"closed: tls handshake eof");
}

/// Whether a client of this configuration resumes a session: it must read what follows the handshake to have a ticket.
async fn resumes(server: &ServerTls, client: &Arc<ClientConfig>) -> bool {
    let (near, far) = duplex(64 * 1024);
    let name = ServerName::try_from("a.test").unwrap();
    let connecting = TlsConnector::from(Arc::clone(client)).connect(name, near);
    let (client, accepted) = tokio::join!(connecting, server.accept(far, LIMIT));
    let (mut client, mut accepted) = (client.unwrap(), accepted.unwrap());
    accepted.io.write_all(b"!").await.unwrap();
    client.read_u8().await.unwrap();
    accepted.resumed
}

#[tokio::test]
async fn a_session_is_resumed_after_a_reload_and_only_where_the_same_clients_are_let_in() {
    let authority = Authority::new();
    let identity = identity(&authority.issue(&["a.test"]));
    let clients = Roots::read(&authority.pem()).unwrap();
    let known = authority.issue(&["client.test"]);
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut config = client(&authority, Some(&known), &[]);
        let only = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(Roots::read(&authority.pem()).unwrap().store)
            .with_client_cert_resolver(config.client_auth_cert_resolver.clone());
        config = only;
        let config = Arc::new(config);
        let first = ServerTls::new(&identity, None).unwrap();
        let reloaded = ServerTls::new(&identity, None).unwrap();
        assert!(!resumes(&first, &config).await);
        assert!(resumes(&first, &config).await);
        drop(first);
        assert!(resumes(&reloaded, &config).await);
        let strict = ServerTls::new(&identity, Some(&clients)).unwrap();
        assert!(!resumes(&strict, &config).await, "the ticket says nothing of a certificate");
        assert!(resumes(&strict, &config).await);
    }
}

/// RSA of 4096 bits.
const SLOW: (&str, &str) = (
    include_str!("../../../../tests/tls/slow.pem"),
    include_str!("../../../../tests/tls/slow.key"),
);

#[tokio::test]
async fn a_slow_key_signs_on_a_thread_of_its_own() {
    let authority = Authority::new();
    let fast = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
    assert!(fast.apart.is_none());
    let certificates = Certificates::read(SLOW.0, Timestamp::from_nanos(0)).unwrap();
    let slow = Identity::pair(certificates, &Key::read(SLOW.1).unwrap()).unwrap();
    let server = ServerTls::new(&slow, None).unwrap();
    let roots = Roots::read(SLOW.0).unwrap().store;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    assert!(!resumes(&server, &config).await);
    assert!(resumes(&server, &config).await);
    // Plain HTTP is told as such here, too.
    let (mut near, far) = duplex(1024);
    near.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap();
    insta::assert_snapshot!(told(server.accept(far, LIMIT).await), @"notTls: what came is no TLS: plain HTTP, perhaps");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_a_bound() {
    let authority = Authority::new();
    let server = ServerTls::new(&identity(&authority.issue(&["a.test"])), None).unwrap();
    let (mut near, far) = duplex(1024);
    near.write_all(&[22, 3, 1]).await.unwrap();
    let begun = tokio::time::Instant::now();
    insta::assert_snapshot!(told(server.accept(far, LIMIT).await), @"timeout: it was not done within PT5S (limits.headTimeout)");
    assert_eq!(begun.elapsed(), LIMIT);
}

#[test]
fn servers_are_told_apart_by_their_files() {
    let authority = Authority::new();
    let [one, other] = [authority.issue(&["a.test"]), authority.issue(&["a.test"])];
    let clients = Roots::read(&authority.pem()).unwrap();
    let server = |issued, clients| ServerTls::new(&identity(issued), clients).unwrap();
    assert_eq!(server(&one, None), server(&one, None));
    assert_ne!(server(&one, None), server(&other, None));
    assert_ne!(server(&one, None), server(&one, Some(&clients)));
}

#[test]
fn every_reason_has_a_label_of_its_own() {
    for (place, reason) in TlsFailure::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, place, "{reason:?}");
    }
    let labels: std::collections::BTreeSet<_> =
        TlsFailure::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(labels.len(), TlsFailure::ALL.len());
}
