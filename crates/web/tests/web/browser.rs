//! Chromium controlled by WebDriver (W3C): chromedriver accepts JSON over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{TIMEOUT, request};

/// A browser with one window; dropping it closes both.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

/// Returns whether a browser is installed; otherwise tests that need it are skipped.
pub fn is_there() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &&str| std::env::split_paths(&paths).any(|folder| folder.join(name).exists());
    let missing = ["chromedriver", "chromium"].into_iter().find(|name| !has(name));
    missing.inspect(|name| trunkline_io::must::skip(format!("there is no {name}"))).is_none()
}

impl Browser {
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            // Temporary files go into the profile's directory.
            .env("TMPDIR", profile.path())
            .env("HOME", profile.path())
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("chromedriver says its port")));
        // Discard later output, so that the process does not block.
        std::thread::spawn(move || lines.for_each(drop));
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--no-proxy-server",
            "--window-size=1360,1000",
            "--force-device-scale-factor=1",
        ];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let opened = browser.command("POST", "/session", &wanted);
        browser.session = opened["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let text = if method == "GET" { String::new() } else { body.to_string() };
        let headers = [("Content-Type", "application/json")];
        let reply = request(self.address, method, path, &headers, &text);
        let answer = reply.json();
        assert_eq!(reply.status, 200, "{path}: {}", answer["value"]["message"]);
        answer["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.command("POST", &format!("/session/{}{path}", self.session), body)
    }

    pub fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    pub fn reload(&self) {
        self.post("/refresh", &json!({}));
    }

    /// Runs a script and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a script returns true.
    pub fn until(&self, script: &str) {
        let started_at = Instant::now();
        while self.run(&format!("return Boolean({script})")) != true {
            let seen = self
                .run("return location.hash + ' ' + document.getElementById('main').innerText.slice(0, 1500)");
            assert!(
                started_at.elapsed() < TIMEOUT,
                "waited in vain for {script}: {seen} {:?}",
                self.errors()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the errors in the browser's log: script errors and violations of the content security policy.
    pub fn errors(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().into_iter().flatten();
        let severe = entries.filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn act(&self, actions: &Value) {
        self.post("/actions", &json!({ "actions": [actions] }));
    }

    /// Presses keys one after the other, with the names of WebDriver (section 17.4.2).
    pub fn keys(&self, keys: &[&str]) {
        let strokes =
            keys.iter().flat_map(|key| ["keyDown", "keyUp"].map(|way| json!({ "type": way, "value": key })));
        let strokes: Vec<Value> = strokes.collect();
        self.act(&json!({ "type": "key", "id": "keys", "actions": strokes }));
    }

    /// Drags the mouse from one position of the window to another.
    pub fn drag(&self, from: (i64, i64), to: (i64, i64)) {
        let at = |(x, y): (i64, i64)| json!({ "type": "pointerMove", "duration": 20, "origin": "viewport", "x": x, "y": y });
        let halfway = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
        let actions = [
            at(from),
            json!({ "type": "pointerDown", "button": 0 }),
            at(halfway),
            at(to),
            json!({ "type": "pointerUp", "button": 0 }),
        ];
        self.act(&json!({ "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": actions }));
    }

    pub fn click(&self, css: &str) {
        let found = self.post("/element", &json!({ "using": "css selector", "value": css }));
        let id =
            found.as_object().and_then(|o| o.values().next()).and_then(Value::as_str).expect("an element");
        self.post(&format!("/element/{id}/click"), &json!({}));
    }

    /// Emulates the preferred colour scheme of the system.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let parameters = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.post("/goog/cdp/execute", &parameters);
    }

    /// Saves a screenshot as PNG.
    pub fn picture(&self, to: &Path) {
        let text = self.command("GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        std::fs::write(to, base64(text.as_str().expect("text"))).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ignore errors: the test may have failed already.
            let _ = end(self.address, &self.session);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Ends a session and its browser.
fn end(driver: SocketAddr, session: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(driver)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let request =
        format!("DELETE /session/{session} HTTP/1.1\r\nHost: {driver}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    // The response arrives when the session has ended; the connection stays open.
    stream.read(&mut [0; 1]).map(drop)
}

/// Decodes base64 (RFC 4648, section 4).
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in text.bytes().filter_map(|c| DIGITS.iter().position(|d| *d == c)) {
        (bits, count) = (bits << 6 | digit as u32, count + 6);
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}
