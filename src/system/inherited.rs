//! Listening sockets that another process has opened: a service manager, which starts this process with them
//! (`sd_listen_fds(3)`), or a process that this one replaces and that passes them on.

use std::env;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process;

use listenfd::ListenFd;
use socket2::SockRef;

/// How many sockets a service manager may pass. One that names more has made a mistake.
const MOST: usize = 1024;

/// What a process that passes its sockets on calls those for clients.
pub const LISTENER: &str = "listener";
/// What it calls the one for operators.
pub const ADMIN: &str = "admin";

/// Who has opened a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opener {
    /// The service manager. It keeps the socket open whatever this process does.
    #[default]
    ServiceManager,
    /// The process with this number. It closes the socket once this process serves.
    Process(u32),
}

/// Listening sockets of one opener. None by default.
#[derive(Debug, Default)]
pub struct Inherited {
    opener: Opener,
    sockets: Vec<Socket>,
}

#[derive(Debug)]
struct Socket {
    /// What the opener calls it.
    name: String,
    /// The address in the opener's configuration, whose port may be 0.
    configured: SocketAddr,
    /// The address that it listens on.
    local: SocketAddr,
    listener: TcpListener,
}

/// Sockets on one address, as many as their opener had.
#[derive(Debug)]
pub struct Shared {
    /// The address that they listen on.
    pub local: SocketAddr,
    /// Further descriptors of the sockets.
    pub sockets: Vec<TcpListener>,
}

/// A socket, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// What its opener calls it.
    pub name: String,
    /// The address that it listens on.
    pub local: SocketAddr,
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceManager => f.write_str("the service manager"),
            Self::Process(number) => write!(f, "process {number}"),
        }
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (`{}`)", self.local, self.name)
    }
}

impl Inherited {
    /// No socket yet of this process.
    pub const fn of_process(number: u32) -> Self {
        Self { opener: Opener::Process(number), sockets: Vec::new() }
    }

    /// The sockets with which a service manager has started this process. Must be called before any thread is started,
    /// because it removes `LISTEN_PID` and `LISTEN_FDS` from the environment.
    ///
    /// `LISTEN_FDNAMES` stays, as only unsafe code can remove it: without `LISTEN_PID` it means nothing to anybody.
    ///
    /// # Errors
    /// When the variables, or what they name, are not what a service manager passes.
    pub fn of_service_manager() -> Result<Self, String> {
        let variable = |name| env::var(name).unwrap_or_default();
        let ours = variable("LISTEN_PID") == process::id().to_string();
        let (count, names) = (variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"));
        let count = count.parse().ok().filter(|count| !ours || *count <= MOST).ok_or(count);
        let known = count.is_ok();
        // It would allocate what a wrong number says.
        let mut given = if known { ListenFd::from_env() } else { ListenFd::empty() };
        if !ours {
            return Ok(Self::default());
        }
        let count = count.map_err(|count| {
            format!("LISTEN_FDS is `{count}`; wanted: a number of sockets, at most {MOST}")
        })?;
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let mut inherited = Self::default();
        for place in 0..count {
            let name = names.next().unwrap_or("unknown").to_owned();
            let wrong = |problem: &dyn fmt::Display| {
                format!(
                    "socket {place} of LISTEN_FDS (`{name}`): {problem}; wanted: a listening TCP socket \
                     (ListenStream= with a port, without Accept=yes)"
                )
            };
            let taken = given.take_tcp_listener(place).map_err(|error| wrong(&error))?;
            let listener = taken.ok_or_else(|| wrong(&"it is not there"))?;
            inherited.add(name.clone(), None, listener).map_err(|error| wrong(&error))?;
        }
        Ok(inherited)
    }

    /// Adds a socket. `configured` is the address in its opener's configuration, if that is known.
    ///
    /// # Errors
    /// When it is not a listening TCP socket.
    pub fn add(
        &mut self,
        name: String,
        configured: Option<SocketAddr>,
        listener: TcpListener,
    ) -> io::Result<()> {
        if !SockRef::from(&listener).is_listener()? {
            return Err(io::Error::other("it does not listen"));
        }
        let local = listener.local_addr()?;
        // All who have the socket open share this: nobody waits in an accept.
        listener.set_nonblocking(true)?;
        self.sockets.push(Socket {
            name,
            configured: configured.unwrap_or(local),
            local,
            listener,
        });
        Ok(())
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Who has opened them.
    pub const fn opener(&self) -> Opener {
        self.opener
    }

    /// The sockets for the [`LISTENER`] or the [`ADMIN`] that is configured with this address, if there are any.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn share(&self, name: &str, address: SocketAddr) -> io::Result<Option<Shared>> {
        let Some(local) = self.local(name, address) else {
            return Ok(None);
        };
        let same = self.sockets.iter().filter(|socket| socket.local == local);
        let sockets: io::Result<_> = same.map(|socket| socket.listener.try_clone()).collect();
        Ok(Some(Shared { local, sockets: sockets? }))
    }

    /// The sockets that these names and addresses have a use for, and the others.
    pub fn divided(&self, wanted: &[(&str, SocketAddr)]) -> (Vec<SocketName>, Vec<SocketName>) {
        let used: Vec<_> =
            wanted.iter().filter_map(|(name, address)| self.local(name, *address)).collect();
        let name = |socket: &Socket| SocketName { name: socket.name.clone(), local: socket.local };
        let (taken, left): (Vec<&Socket>, Vec<_>) =
            self.sockets.iter().partition(|socket| used.contains(&socket.local));
        (taken.into_iter().map(name).collect(), left.into_iter().map(name).collect())
    }

    /// The address on which what is configured with `address` will listen, if a socket is there for it. Ports that the system
    /// has chosen are told apart by the names.
    fn local(&self, name: &str, address: SocketAddr) -> Option<SocketAddr> {
        let fits = |socket: &&Socket| {
            socket.local == address || (socket.name == name && socket.configured == address)
        };
        self.sockets.iter().find(fits).map(|socket| socket.local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn a_listener_takes_all_sockets_of_its_address_as_configured_or_as_bound() {
        let (first, second) =
            (TcpListener::bind(any()).unwrap(), TcpListener::bind(any()).unwrap());
        let (one, other) = (first.local_addr().unwrap(), second.local_addr().unwrap());
        let mut inherited = Inherited::of_process(7);
        inherited.add(ADMIN.into(), Some(any()), second).unwrap();
        inherited.add(LISTENER.into(), Some(any()), first.try_clone().unwrap()).unwrap();
        inherited.add(LISTENER.into(), Some(any()), first).unwrap();
        for address in [any(), one] {
            let shared = inherited.share(LISTENER, address).unwrap().unwrap();
            assert_eq!((shared.local, shared.sockets.len()), (one, 2));
        }
        for (name, address) in [(ADMIN, any()), (ADMIN, other), ("web", other)] {
            let shared = inherited.share(name, address).unwrap().unwrap();
            assert_eq!((shared.local, shared.sockets.len()), (other, 1));
        }
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], one.port()));
        assert!(inherited.share(LISTENER, elsewhere).unwrap().is_none());
        let (taken, left) = inherited.divided(&[(ADMIN, any()), (LISTENER, elsewhere)]);
        assert_eq!(taken, [SocketName { name: ADMIN.into(), local: other }]);
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].to_string(), format!("{one} (`listener`)"));
        assert_eq!(inherited.opener().to_string(), "process 7");
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let listener = TcpListener::bind(any()).unwrap();
        let connected = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let taken = TcpListener::from(std::os::fd::OwnedFd::from(connected));
        let error = Inherited::default().add("c".into(), None, taken).unwrap_err();
        assert_eq!(error.to_string(), "it does not listen");
    }
}
