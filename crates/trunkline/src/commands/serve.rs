//! `trunkline serve`: the page over the archive of counters.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trunkline_counters::archive::Location;
use trunkline_web::{Error, Options, Server, Token};

use crate::archive;
use crate::failure::{Failure, say};
use crate::flags::serve::Serve;

/// Most octets of a file with a token.
const MOST_TOKEN_FILE: u64 = 4_096;

/// Does what was said.
pub fn serve(flags: &Serve) -> Result<(), Failure> {
    let archive =
        flags.archive.clone().map_or_else(|| archive::default("counters.sqlite").map(Location::from), Ok)?;
    if !archive.may_exist() {
        return Err(Failure::input(format!("there is no archive at {archive}")));
    }
    let (token, is_new) = token(flags)?;
    let server = Server::bind(&Options { archive, listen: flags.listen, token: token.clone() });
    let server = server.map_err(|error| match error {
        Error::Archive(_) | Error::Open(_) => Failure::input(error),
        Error::Listen { .. } | Error::System(_) => Failure::run(error),
    })?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::run)?;
    let stop = server.stopper();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stop.stop();
        }
    });
    say(&link(server.address(), token.filter(|_| is_new).as_ref()))?;
    server.run().map_err(Failure::run)
}

/// Where to look. A token that was there already is known, and not told again.
fn link(address: SocketAddr, new: Option<&Token>) -> String {
    let secret = new.map_or(String::new(), |token| format!("?token={}", token.secret()));
    format!("http://{address}/{secret}\n")
}

/// The token, if one is needed, and whether it is new.
fn token(flags: &Serve) -> Result<(Option<Token>, bool), Failure> {
    match &flags.token_file {
        Some(path) => read(path).map(|(token, is_new)| (Some(token), is_new)),
        None if flags.listen.ip().is_loopback() => Ok((None, false)),
        None => Ok((Some(Token::random().map_err(Failure::run)?), true)),
    }
}

/// What stands in a file; made where there is none.
fn read(path: &Path) -> Result<(Token, bool), Failure> {
    let trouble = |error: std::io::Error| Failure::input(format!("{}: {error}", path.display()));
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let token = Token::random().map_err(Failure::run)?;
            writeln!(file, "{}", token.secret()).map_err(trouble)?;
            Ok((token, true))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut text = String::new();
            let file = std::fs::File::open(path).map_err(trouble)?;
            file.take(MOST_TOKEN_FILE).read_to_string(&mut text).map_err(trouble)?;
            let token = Token::new(&text);
            Ok((token.map_err(|no| Failure::input(format!("{}: {no}", path.display())))?, false))
        }
        Err(error) => Err(trouble(error)),
    }
}
