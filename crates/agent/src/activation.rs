//! Socket activation: a listening socket that systemd has opened (sd_listen_fds(3)).

use std::net::TcpListener;
use std::os::fd::BorrowedFd;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};

/// The first descriptor that is passed.
const FIRST: i32 = 3;

/// Why the descriptors that were passed cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is another number than one.
    #[error("systemd passed {0} sockets: the agent listens on one address")]
    Number(String),
    /// It is something else.
    #[error("systemd passed no listening TCP socket: {0}")]
    NotListening(nix::Error),
}

/// Returns the socket that was passed to this process, if any.
pub fn listener() -> Result<Option<TcpListener>, Error> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    // The variables may be meant for a parent of this process.
    if variable("LISTEN_PID") != std::process::id().to_string() {
        return Ok(None);
    }
    match variable("LISTEN_FDS") {
        number if number == "1" => listening(FIRST).map(Some).map_err(Error::NotListening),
        number => Err(Error::Number(number)),
    }
}

/// Returns a copy of a listening socket.
fn listening(descriptor: i32) -> Result<TcpListener, nix::Error> {
    // SAFETY: It is only used in this function, which closes nothing; a descriptor that is not open is an error of the
    // system calls.
    let passed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    // Processes of runs must not inherit it.
    fcntl(passed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    if !getsockopt(&passed, sockopt::AcceptConn)? {
        return Err(nix::Error::EINVAL);
    }
    let copy = passed.try_clone_to_owned();
    Ok(copy.map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or_default()))?.into())
}
