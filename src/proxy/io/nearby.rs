//! Connections that do not leave this machine.
//!
//! A sidecar's service is on the loopback, where there is no congestion to control: nothing queues but what the other
//! side has not read, which the window says. A system that is set to BBR paces there all the same, each connection
//! by a timer of its own, and cuts what is sent to the pace: a third of what a megabyte costs a proxy. So a connection on the
//! loopback is not paced. Elsewhere the system's choice stands.

use socket2::SockRef;

/// What every system has, and lets everybody choose (`tcp_allowed_congestion_control`). It does not pace.
#[cfg(target_os = "linux")]
const UNPACED: &[u8] = b"reno";

/// What is sent by `socket`, or by the connections that it accepts, is not paced. To be said before there is a
/// connection: pacing that has begun does not stop.
#[cfg(target_os = "linux")]
pub(crate) fn unpaced(socket: &SockRef<'_>) {
    if !socket.tcp_congestion().is_ok_and(|name| paces(&name)) {
        return;
    }
    if let Err(error) = socket.set_tcp_congestion(UNPACED) {
        tracing::debug!(%error, "TCP_CONGESTION could not be set: the loopback is paced, too.");
    }
}

/// Of other systems none is known to pace by default.
#[cfg(not(target_os = "linux"))]
pub(crate) const fn unpaced(_: &SockRef<'_>) {}

/// Whether the algorithm of this name paces: BBR, in each of its versions.
#[cfg(target_os = "linux")]
pub(crate) fn paces(name: &[u8]) -> bool {
    name.starts_with(b"bbr")
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn bbr_paces_and_the_usual_ones_do_not() {
        assert!(paces(b"bbr\0\0") && paces(b"bbr2\0"));
        assert!(!paces(b"cubic\0") && !paces(UNPACED) && !paces(b""));
    }

    #[test]
    fn no_socket_paces_afterwards() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        unpaced(&SockRef::from(&socket));
        assert!(!paces(&socket.tcp_congestion().unwrap()));
        // On a system that has not BBR that says little: what it would be set to can be set.
        socket.set_tcp_congestion(UNPACED).unwrap();
        assert!(socket.tcp_congestion().unwrap().starts_with(UNPACED));
    }
}
