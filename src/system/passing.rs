//! Passes descriptors from process to process, over a Unix socket (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How many descriptors one read can bring. The system does not join two writes that each bring one.
const AT_ONCE: usize = 4;

/// The number of this process's effective user.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Writes bytes to a Unix socket, with a descriptor beside the first of them. Returns how many bytes were written.
///
/// # Errors
/// When the other side is gone, or the socket would block.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("a descriptor takes more room than it should"));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
}

/// Reads bytes from a Unix socket, and adds the descriptors that are beside them. No child will inherit these.
///
/// # Errors
/// When the connection has broken, the socket would block, or there are more descriptors than one read can take.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    descriptors: &mut impl Extend<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(AT_ONCE))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(bytes)];
    let read = recvmsg(socket, into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if read.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "more descriptors come than were announced, or none are left",
        ));
    }
    Ok(read.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_passes_with_the_line_that_is_about_it() {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        for line in ["one\n", "two\n"] {
            assert_eq!(send(&near, line.as_bytes(), Some(listener.as_fd())).unwrap(), 4);
        }
        assert_eq!(send(&near, b"three\n", None).unwrap(), 6);
        drop((near, listener));
        let (mut text, mut passed) = (Vec::new(), Vec::new());
        let mut bytes = [0; 64];
        loop {
            let read = receive(&far, &mut bytes, &mut passed).unwrap();
            if read == 0 {
                break;
            }
            text.extend_from_slice(&bytes[..read]);
        }
        assert_eq!(text, b"one\ntwo\nthree\n");
        assert_eq!(passed.len(), 2);
        // The socket listens as long as one descriptor is open.
        let last = TcpListener::from(passed.pop().unwrap());
        drop(passed);
        let _client = TcpStream::connect(address).unwrap();
        assert!(last.accept().is_ok());
        let flags = rustix::io::fcntl_getfd(&last).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
