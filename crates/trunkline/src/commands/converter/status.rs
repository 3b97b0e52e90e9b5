//! The HTTP server of the status page: one thread, one request at a time, no stored state.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/`, for a person.
    Text,
    /// `/metrics`, for Prometheus.
    Metrics,
}

/// Maximum length of a request, in octets.
const MAX_REQUEST: usize = 8_192;
/// Timeout for a request and its response.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed `accept`: with too many open files the next one would fail, too.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listener whose thread requests pages from the daemon.
pub struct Status {
    waker: PipeReader,
    requests: Receiver<Page>,
    responses: SyncSender<String>,
}

impl Status {
    /// Listens on `at`.
    pub fn open(at: SocketAddrV4) -> io::Result<Status> {
        let listener = TcpListener::bind(at)?;
        let (waker, mut wake) = io::pipe()?;
        let (request_sender, requests) = sync_channel(1);
        let (responses, response_receiver) = sync_channel(1);
        thread::Builder::new().name("status".into()).spawn(move || {
            let serve = |stream| {
                // Errors of a client are ignored.
                let _ =
                    serve(stream, |page| request_page(page, &request_sender, &mut wake, &response_receiver));
            };
            #[expect(clippy::disallowed_methods, reason = "there is no event for free descriptors")]
            serve_all(listener.incoming(), serve, || thread::sleep(ACCEPT_RETRY_DELAY));
        })?;
        Ok(Status { waker, requests, responses })
    }

    /// Returns the pipe that becomes readable when a request is pending.
    pub fn waker(&self) -> &PipeReader {
        &self.waker
    }

    /// Answers the pending request.
    pub fn answer(&mut self, page: impl Fn(Page) -> String) {
        let _ = self.waker.read(&mut [0]);
        if let Ok(kind) = self.requests.try_recv() {
            let _ = self.responses.try_send(page(kind));
        }
    }
}

/// Serves each connection; pauses after an `accept` that failed.
fn serve_all<T>(
    connections: impl Iterator<Item = io::Result<T>>,
    mut serve: impl FnMut(T),
    mut pause: impl FnMut(),
) {
    for connection in connections {
        match connection {
            Ok(stream) => serve(stream),
            Err(_) => pause(),
        }
    }
}

/// Requests a page from the daemon and waits for it.
fn request_page(
    page: Page,
    requests: &SyncSender<Page>,
    wake: &mut PipeWriter,
    responses: &Receiver<String>,
) -> Option<String> {
    requests.send(page).ok()?;
    wake.write_all(&[0]).ok()?;
    responses.recv().ok()
}

fn serve(mut stream: TcpStream, get_page: impl FnOnce(Page) -> Option<String>) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (status, kind, body) = match request_path(&mut stream)? {
        Some(path) => match path.as_str() {
            "/" => ("200 OK", "text/plain; charset=utf-8", get_page(Page::Text)),
            "/metrics" => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", get_page(Page::Metrics)),
            _ => ("404 Not Found", "text/plain", Some("not found; the pages are / and /metrics\n".into())),
        },
        None => ("400 Bad Request", "text/plain", Some("only GET is supported\n".into())),
    };
    let body = body.unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Returns the path of a GET request, or `None` for other requests.
fn request_path(stream: &mut TcpStream) -> io::Result<Option<String>> {
    #[expect(clippy::disallowed_methods, reason = "a client is awaited in real time")]
    let until = Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut buffer = [0; 1_024];
    while bytes.len() < MAX_REQUEST {
        #[expect(clippy::disallowed_methods, reason = "a client is awaited in real time")]
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            got => bytes.extend_from_slice(&buffer[..got]),
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) if request.method == Some("GET") => {
                return Ok(request.path.map(str::to_owned));
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_accept_is_followed_by_a_pause() {
        let full = || Err(io::Error::from_raw_os_error(24));
        let (mut served, mut pauses) = (Vec::new(), 0);
        serve_all([Ok(1), full(), full(), Ok(2), full()].into_iter(), |one| served.push(one), || pauses += 1);
        assert_eq!((served, pauses), (vec![1, 2], 3));
    }
}
