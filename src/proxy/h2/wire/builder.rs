//! Makes connections.

use std::sync::Arc;
use std::sync::Mutex;

use tokio::io::{AsyncRead, AsyncWrite};

use super::client::{ClientConnection, SendRequest};
use super::config::Config;
use super::connection::Connection;
use super::error::Error;
use super::frame::PREFACE;
use super::server::ServerConnection;
use super::settings::MAX_WINDOW;
use super::state::{Role, State};
use crate::proxy::h2::traffic::Traffic;

/// Makes connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builder(Config);

impl Builder {
    /// Everything has its default.
    pub(crate) const fn new() -> Self {
        Self(Config::new())
    }

    /// How many streams a client may have open.
    pub(crate) const fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.0.max_concurrent_streams = Some(streams);
        self
    }

    /// The window of each stream, in bytes.
    pub(crate) fn initial_window_size(mut self, size: u32) -> Self {
        self.0.window = Some(size.min(MAX_WINDOW));
        self
    }

    /// The window of the connection, in bytes. It is not less than the default.
    pub(crate) fn initial_connection_window_size(mut self, size: u32) -> Self {
        self.0.connection_window = Some(size.min(MAX_WINDOW));
        self
    }

    /// How many bytes of one stream's data may wait to be sent.
    pub(crate) const fn max_send_buffer_size(mut self, size: usize) -> Self {
        self.0.max_send_buffer_size = size;
        self
    }

    /// How large a list of fields may be, as HTTP/2 counts it (RFC 9113 §6.5.2).
    pub(crate) const fn max_header_list_size(mut self, size: u32) -> Self {
        self.0.max_header_list_size = Some(size);
        self
    }

    /// How many requests may be sent before the other side says how many it accepts.
    pub(crate) const fn initial_max_send_streams(mut self, streams: usize) -> Self {
        self.0.initial_max_send_streams = streams;
        self
    }

    /// Serves a client, once its preface has come.
    pub(crate) async fn serve<T>(self, io: T) -> Result<ServerConnection<T>, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let mut state = State::new(Role::Server, self.0);
        self.0.own(false).put(state.out.buffer());
        let mut connection = Connection::new(io, Arc::new(Mutex::new(state)), Arc::default());
        std::future::poll_fn(|cx| connection.poll_preface(cx)).await?;
        Ok(ServerConnection::new(connection))
    }

    /// Greets a server. Nothing is sent before the connection is polled.
    pub(crate) fn connect<T>(self, io: T) -> (SendRequest, ClientConnection<T>) {
        let mut state = State::new(Role::Client, self.0);
        state.out.buffer().extend_from_slice(PREFACE);
        self.0.own(true).put(state.out.buffer());
        state.senders = 1;
        let shared = Arc::new(Mutex::new(state));
        let connection = Connection::new(io, Arc::clone(&shared), Arc::<Traffic>::default());
        (SendRequest::new(shared), ClientConnection::new(connection))
    }
}
