//! `trunkline serve`: the web page over an archive of counters.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trunkline_counters::archive::{Error as ArchiveError, Location};
use trunkline_web::{Error, Options, Server, Token};

use crate::archive;
use crate::failure::{Failure, print, warn};
use crate::flags::Serve;

/// Maximum size of a token file, in bytes.
const MAX_TOKEN_FILE: u64 = 4_096;
/// Interval between checks whether the archive has been created.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Serves the page until SIGINT or SIGTERM.
pub fn serve(flags: &Serve) -> Result<(), Failure> {
    let archive = archive::counters_archive(&flags.archive, None)?;
    let (token, is_new) = token(flags)?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::run)?;
    let options = Options { archive, listen: flags.listen, token: token.clone() };
    let Some(server) = bind_when_created(&options, &mut signals)? else { return Ok(()) };
    let stop = server.stop_handle();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stop.stop();
        }
    });
    print(&link(server.address(), token.filter(|_| is_new).as_ref()))?;
    server.run().map_err(Failure::run)
}

/// Binds the server once its archive exists; returns `None` if a signal arrives before.
fn bind_when_created(options: &Options, signals: &mut Signals) -> Result<Option<Server>, Failure> {
    let mut is_waiting = false;
    loop {
        if !is_missing(&options.archive) {
            match Server::bind(options) {
                Ok(server) => return Ok(Some(server)),
                // The poller creates the tables of a database after it connects.
                Err(Error::Archive(ArchiveError::NotAnArchive(archive))) if archive.file().is_none() => {}
                Err(error @ (Error::Archive(_) | Error::TokenRequired(_))) => {
                    return Err(Failure::input(error));
                }
                Err(error @ (Error::Listen { .. } | Error::System(_))) => return Err(Failure::run(error)),
            }
        }
        if !is_waiting {
            is_waiting = true;
            warn(&format!("waiting for `trunkline monitor poll` to create the archive {}", options.archive));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "another process creates the archive; there is no event to wait for"
        )]
        std::thread::sleep(CHECK_INTERVAL);
        if signals.pending().next().is_some() {
            return Ok(None);
        }
    }
}

/// Whether the archive is a file that does not exist, or that SQLite has created but not written yet.
fn is_missing(archive: &Location) -> bool {
    archive.file().is_some_and(|path| match fs::metadata(path) {
        Ok(metadata) => metadata.is_file() && metadata.len() == 0,
        Err(error) => error.kind() == ErrorKind::NotFound,
    })
}

/// Returns the link to open, with the token only if it is new.
fn link(address: SocketAddr, new: Option<&Token>) -> String {
    let secret = new.map_or(String::new(), |token| format!("?token={}", token.secret()));
    format!("http://{address}/{secret}\n")
}

/// Returns the token, if clients need one, and whether it is new.
fn token(flags: &Serve) -> Result<(Option<Token>, bool), Failure> {
    match &flags.token_file {
        Some(path) => read_or_create_token(path).map(|(token, is_new)| (Some(token), is_new)),
        None if flags.listen.ip().is_loopback() => Ok((None, false)),
        None => Ok((Some(Token::random().map_err(Failure::run)?), true)),
    }
}

/// Reads the token from a file, or writes a new one to it; returns the token and whether it is new.
fn read_or_create_token(path: &Path) -> Result<(Token, bool), Failure> {
    let io_error = |error: std::io::Error| Failure::input(format!("{}: {error}", path.display()));
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let token = Token::random().map_err(Failure::run)?;
            writeln!(file, "{}", token.secret()).map_err(io_error)?;
            Ok((token, true))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut text = String::new();
            let file = File::open(path).map_err(io_error)?;
            file.take(MAX_TOKEN_FILE).read_to_string(&mut text).map_err(io_error)?;
            let token = Token::new(&text);
            Ok((token.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?, false))
        }
        Err(error) => Err(io_error(error)),
    }
}
