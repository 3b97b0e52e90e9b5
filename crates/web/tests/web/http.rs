//! Plain HTTP, as a program speaks it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Nothing here takes so long, even on a machine with much else to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{}: {e}: {text}", self.status))
    }

    /// What is wrong, of an answer that says so.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error says why").to_owned()
    }
}

/// Asks once.
pub fn request(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut stream = open(to, method, path, headers, body);
    let (status, headers) = head(&mut stream);
    let length = headers.iter().find(|(name, _)| name == "content-length").map(|(_, n)| n.parse().unwrap());
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            stream.read_exact(&mut body).unwrap();
        }
        None => drop(stream.read_to_end(&mut body)),
    }
    Reply { status, headers, body }
}

/// Sends a request.
pub fn open(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += &format!("Host: {to}\r\n");
    }
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Status and headers, names in small letters.
pub fn head(stream: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let line = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let mut lines = std::iter::repeat_with(line);
    let first = lines.next().unwrap();
    let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {first:?}")).parse().unwrap();
    let headers = lines.take_while(|line| !line.is_empty());
    let headers = headers.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    (status, headers.collect())
}

/// Asks for something to read.
pub fn get(to: SocketAddr, path: &str) -> Reply {
    request(to, "GET", path, &[], "")
}
