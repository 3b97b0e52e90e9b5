//! The socket in the key store through which a running agent gives a join string to another process of its owner.
//!
//! Only the owner of the key store reaches it, because the directory has mode 0700. So the secret goes to the terminal
//! of the user who requests it, and neither into the agent's log nor into a file. A client sends the line `join`,
//! receives one line, `{"join": "…"}` or `{"error": "…"}`, and is disconnected.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::join::{JoinError, JoinString};
use crate::key_store::{self, KeyStore};

/// The name of the socket in the key store.
const SOCKET_FILE: &str = "agent.socket";
/// Time for a line.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What a client sends. An agent that only checks whether another runs sends nothing.
const REQUEST: &str = "join\n";
/// Maximum length of a line in octets.
const MAX_LINE: u64 = 4096;

/// Why there is no socket or no join string.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key store cannot be used.
    #[error(transparent)]
    KeyStore(#[from] key_store::Error),
    /// Another agent has the key store.
    #[error("an agent with the keys in {} is running already", .0.display())]
    Running(PathBuf),
    /// No agent has the key store.
    #[error("no agent with the keys in {} is running", .0.display())]
    NotRunning(PathBuf),
    /// The agent cannot issue a join string.
    #[error("{0}")]
    Refused(String),
    /// The answer is not a join string.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// An error of the operating system.
    #[error("cannot use {}: {reason}", .path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The reason given by the system.
        reason: io::Error,
    },
}

/// The answer to a connection.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Join(String),
    Error(String),
}

/// The socket of a running agent. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct JoinSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl JoinSocket {
    /// Creates the socket. It is an error if another agent has one in this key store.
    pub fn bind(store: &KeyStore) -> Result<JoinSocket, Error> {
        let path = store.directory().join(SOCKET_FILE);
        let error = |reason| Error::System { path: path.clone(), reason };
        // With the lock, no other agent creates the socket between the checks.
        let _lock = store.lock()?;
        if UnixStream::connect(&path).is_ok() {
            return Err(Error::Running(store.directory().into()));
        }
        // An agent that was killed has left it.
        match fs::remove_file(&path) {
            Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(error(reason)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(error)?;
        Ok(JoinSocket { listener, path })
    }

    /// Answers each request with a result of `issue`, on a thread that ends with the process.
    pub fn serve(
        &self,
        issue: impl Fn() -> Result<JoinString, String> + Send + 'static,
    ) -> Result<(), Error> {
        let error = |reason| Error::System { path: self.path.clone(), reason };
        let listener = self.listener.try_clone().map_err(error)?;
        let serve = move || {
            for stream in listener.incoming() {
                // A client that leaves needs no handling; out of file descriptors, wait until some are closed.
                match stream {
                    Ok(stream) => drop(answer(&stream, &issue)),
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        };
        thread::Builder::new().name("join strings".into()).spawn(serve).map_err(error)?;
        Ok(())
    }
}

impl Drop for JoinSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn answer(mut stream: &UnixStream, issue: &impl Fn() -> Result<JoinString, String>) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line)?;
    if line != REQUEST {
        return Ok(());
    }
    let answer = issue().map_or_else(Answer::Error, |join| Answer::Join(join.to_string()));
    writeln!(stream, "{}", serde_json::to_string(&answer)?)
}

/// Requests a join string from the agent that runs with this key store.
pub fn request(store: &KeyStore) -> Result<JoinString, Error> {
    let path = store.directory().join(SOCKET_FILE);
    let error = |reason| Error::System { path: path.clone(), reason };
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(reason)
            if matches!(reason.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
        {
            return Err(Error::NotRunning(store.directory().into()));
        }
        Err(reason) => return Err(error(reason)),
    };
    stream.set_read_timeout(Some(TIMEOUT)).map_err(error)?;
    stream.write_all(REQUEST.as_bytes()).map_err(error)?;
    let mut line = String::new();
    stream.take(MAX_LINE).read_to_string(&mut line).map_err(error)?;
    match serde_json::from_str(&line).map_err(|reason| error(reason.into()))? {
        Answer::Join(text) => Ok(text.parse()?),
        Answer::Error(reason) => Err(Error::Refused(reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use jiff::Timestamp;

    use super::*;
    use crate::join::Secret;
    use crate::{Fingerprint, KeyStore};

    fn store() -> (tempfile::TempDir, KeyStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::open(&folder.path().join("keys")).unwrap();
        (folder, store)
    }

    fn join() -> JoinString {
        let agent = Fingerprint::from_bytes([1; 32]);
        JoinString::new(
            "lab7:7600".parse().unwrap(),
            agent,
            Secret::from_bytes([2; 32]),
            Timestamp::UNIX_EPOCH,
        )
    }

    #[test]
    fn a_running_agent_gives_join_strings() {
        let (_folder, store) = store();
        assert!(matches!(request(&store), Err(Error::NotRunning(_))));
        let socket = JoinSocket::bind(&store).unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let issued = count.clone();
        let issue = move || {
            issued.fetch_add(1, SeqCst);
            Ok(join())
        };
        socket.serve(issue).unwrap();
        // The check does not make a join string void.
        assert!(matches!(JoinSocket::bind(&store), Err(Error::Running(_))));
        for _ in 0..3 {
            assert_eq!(request(&store).unwrap(), join());
        }
        assert_eq!(count.load(SeqCst), 3);
        drop(socket);
        assert!(matches!(request(&store), Err(Error::NotRunning(_))));
    }

    #[test]
    fn errors_and_other_answers_are_one_line() {
        let (_folder, store) = store();
        let socket = JoinSocket::bind(&store).unwrap();
        socket.serve(|| Err("give one with --address".into())).unwrap();
        assert_eq!(request(&store).unwrap_err().to_string(), "give one with --address");
        drop(socket);
        for text in ["", "{}", "{\"join\": \"x\"}", "\u{1b}[2J", &"x".repeat(100_000)] {
            let socket = JoinSocket::bind(&store).unwrap();
            let error = thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = socket.listener.accept().unwrap();
                    stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
                    // The reader does not wait for all of a long text.
                    let _ = stream.write_all(text.as_bytes());
                });
                request(&store).unwrap_err().to_string()
            });
            assert!(!error.contains(['\n', '\u{1b}']), "{error}");
        }
    }

    #[test]
    fn the_socket_of_a_killed_agent_is_replaced() {
        let (_folder, store) = store();
        let socket = JoinSocket::bind(&store).unwrap();
        // The file stays, as after SIGKILL.
        let path = socket.path.clone();
        fs::hard_link(&path, path.with_extension("left")).unwrap();
        drop(socket);
        fs::rename(path.with_extension("left"), &path).unwrap();
        assert!(matches!(request(&store), Err(Error::NotRunning(_))));
        let socket = JoinSocket::bind(&store).unwrap();
        socket.serve(|| Ok(join())).unwrap();
        assert_eq!(request(&store).unwrap(), join());
    }
}
