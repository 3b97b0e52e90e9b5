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
const LONGEST: usize = 8_192;
/// Timeout for a request and its response.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause after a failed `accept`, because too many files are open: the next would fail, too.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener whose thread requests pages from the daemon.
pub struct Status {
    bell: PipeReader,
    questions: Receiver<Page>,
    answers: SyncSender<String>,
}

impl Status {
    /// Listens on `at`.
    pub fn open(at: SocketAddrV4) -> io::Result<Status> {
        let listener = TcpListener::bind(at)?;
        let (bell, mut rope) = io::pipe()?;
        let (ask, questions) = sync_channel(1);
        let (answers, told) = sync_channel(1);
        thread::Builder::new().name("status".into()).spawn(move || {
            let serve = |stream| {
                // Errors of a client are ignored.
                let _ = serve(stream, |page| question(page, &ask, &mut rope, &told));
            };
            #[expect(clippy::disallowed_methods, reason = "there is no event for free descriptors")]
            take(listener.incoming(), serve, || thread::sleep(PAUSE));
        })?;
        Ok(Status { bell, questions, answers })
    }

    /// Returns the pipe that is readable when a request waits.
    pub fn waker(&self) -> &PipeReader {
        &self.bell
    }

    /// Answers the waiting request.
    pub fn answer(&mut self, page: impl Fn(Page) -> String) {
        let _ = self.bell.read(&mut [0]);
        if let Ok(kind) = self.questions.try_recv() {
            let _ = self.answers.try_send(page(kind));
        }
    }
}

/// Serves each connection; pauses after an `accept` that failed.
fn take<T>(comes: impl Iterator<Item = io::Result<T>>, mut serve: impl FnMut(T), mut pause: impl FnMut()) {
    for one in comes {
        match one {
            Ok(stream) => serve(stream),
            Err(_) => pause(),
        }
    }
}

/// Requests a page from the daemon and waits for it.
fn question(
    page: Page,
    ask: &SyncSender<Page>,
    rope: &mut PipeWriter,
    told: &Receiver<String>,
) -> Option<String> {
    ask.send(page).ok()?;
    rope.write_all(&[0]).ok()?;
    told.recv().ok()
}

fn serve(mut stream: TcpStream, ask: impl FnOnce(Page) -> Option<String>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, kind, body) = match request_path(&mut stream)? {
        Some(path) => match path.as_str() {
            "/" => ("200 OK", "text/plain; charset=utf-8", ask(Page::Text)),
            "/metrics" => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", ask(Page::Metrics)),
            _ => ("404 Not Found", "text/plain", Some("there are / and /metrics\n".into())),
        },
        None => ("400 Bad Request", "text/plain", Some("GET is understood\n".into())),
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
    #[expect(clippy::disallowed_methods, reason = "who asks is waited for in real time")]
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut room = [0; 1_024];
    while bytes.len() < LONGEST {
        #[expect(clippy::disallowed_methods, reason = "who asks is waited for in real time")]
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut room)? {
            0 => return Ok(None),
            got => bytes.extend_from_slice(&room[..got]),
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
    fn who_cannot_be_taken_is_waited_for() {
        let full = || Err(io::Error::from_raw_os_error(24));
        let (mut served, mut pauses) = (Vec::new(), 0);
        take([Ok(1), full(), full(), Ok(2), full()].into_iter(), |one| served.push(one), || pauses += 1);
        assert_eq!((served, pauses), (vec![1, 2], 3));
    }
}
