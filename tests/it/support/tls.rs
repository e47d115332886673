//! TLS for tests: an authority, a client, and a TLS server in front of a clear-text one, so that every scripted
//! upstream can have TLS.

#[path = "../../../src/proxy/tls/testing.rs"]
mod authority;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

pub(crate) use self::authority::{Authority, Issued, days};

/// HTTP/2 (ALPN).
pub(crate) const H2: &[u8] = b"h2";
/// HTTP/1.1.
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// With `close_notify`.
    Said,
    /// Without, as anybody who cuts a connection could do.
    Left,
}

/// TLS in front of a clear-text server. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Option<String>>>>,
    task: JoinHandle<()>,
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    Arc::new(roots)
}

fn pair(issued: &Issued) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = PrivateKeyDer::from_pem_slice(issued.key().as_bytes()).unwrap();
    (vec![issued.certificate.der().clone()], key)
}

/// A client that trusts this authority, may present a certificate, and offers these protocols.
pub(crate) fn client(trusts: &Authority, shows: Option<&Issued>, offers: &[&[u8]]) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots(trusts));
    let mut config = match shows.map(pair) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = offers.iter().map(|offer| offer.to_vec()).collect();
    config
}

/// A server that presents this certificate, accepts these protocols and, optionally, only clients with
/// certificates from one authority.
pub(crate) fn server(shows: &Issued, takes: &[&[u8]], lets: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match lets.map(roots) {
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = pair(shows);
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = takes.iter().map(|take| take.to_vec()).collect();
    config
}

/// A connection to a server that must be `a.test`.
pub(crate) async fn connect(
    address: SocketAddr,
    config: ClientConfig,
) -> io::Result<client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    connect_over(stream, config).await
}

/// The same over a connection that exists.
pub(crate) async fn connect_over(
    stream: TcpStream,
    config: ClientConfig,
) -> io::Result<client::TlsStream<TcpStream>> {
    let name = ServerName::try_from("a.test").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

impl Front {
    /// In front of the server at `behind`. Its connections end in this way.
    pub(crate) async fn before(
        behind: SocketAddr,
        config: ServerConfig,
        farewell: Farewell,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let log = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                serving.spawn(serve(stream, behind, acceptor.clone(), farewell, Arc::clone(&log)));
            }
        });
        Self { address, asked, task }
    }

    /// For each completed handshake so far, the name that it requested.
    pub(crate) fn asked(&self) -> Vec<Option<String>> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    behind: SocketAddr,
    acceptor: TlsAcceptor,
    farewell: Farewell,
    log: Arc<Mutex<Vec<Option<String>>>>,
) {
    let Ok(mut near) = acceptor.accept(stream).await else {
        return;
    };
    log.lock().unwrap().push(near.get_ref().1.server_name().map(str::to_owned));
    let mut far = TcpStream::connect(behind).await.unwrap();
    if farewell == Farewell::Said {
        // An error means that either side ended.
        copy_bidirectional(&mut near, &mut far).await.ok();
        return;
    }
    let (mut read, mut write) = tokio::io::split(near);
    let (mut far_read, mut far_write) = far.split();
    tokio::select! {
        _ended = tokio::io::copy(&mut far_read, &mut write) => {}
        _left = tokio::io::copy(&mut read, &mut far_write) => {}
    }
    // Everything was handed on; only the goodbye is missing.
    tokio::io::AsyncWriteExt::flush(&mut write).await.ok();
}
