//! A minimal HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Timeout, generous enough for a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A response.
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

    /// Returns the message of an error response.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error says why").to_owned()
    }
}

/// Sends a request and reads the response.
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
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += &format!("Host: {to}\r\n");
    }
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Reads the status and the headers with lower-case names.
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

/// Sends a GET request.
pub fn get(to: SocketAddr, path: &str) -> Reply {
    request(to, "GET", path, &[], "")
}
