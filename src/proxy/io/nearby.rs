//! Turns pacing off for connections on this machine.
//!
//! A sidecar's service is on the loopback interface, where there is no congestion to control: the only queue is
//! what the peer has not read, and the TCP window covers that. A system that uses BBR still paces there. Each
//! connection gets a timer, and its data is cut to that pace, which costs a proxy a third of its time for a
//! megabyte. So connections on loopback are not paced. Elsewhere the system's choice stands.

use socket2::SockRef;

/// Every system has it and allows everybody to choose it (`tcp_allowed_congestion_control`). It does not pace.
#[cfg(target_os = "linux")]
const UNPACED: &[u8] = b"reno";

/// Turns pacing off for `socket`, or for the connections that it accepts. Must be called before there is a
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

/// No other system is known to pace by default.
#[cfg(not(target_os = "linux"))]
pub(crate) const fn unpaced(_: &SockRef<'_>) {}

/// Whether the algorithm with this name paces: BBR, in all of its versions.
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
        // On a system without BBR this proves little, except that the algorithm can be set.
        socket.set_tcp_congestion(UNPACED).unwrap();
        assert!(socket.tcp_congestion().unwrap().starts_with(UNPACED));
    }
}
