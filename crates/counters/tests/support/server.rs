//! A temporary PostgreSQL server in a directory, reached by a Unix socket and removed when the test process ends for
//! any reason.

#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::disallowed_methods, reason = "servers take their time")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// The default user.
pub const USER: &str = "trunkline";

/// Runs the server as long as the standard input is open, which is as long as the parent process runs.
const SERVER_SCRIPT: &str = r#"
    trap '' INT TERM HUP; dir=$1; shift
    start() { "$@" >>"$dir/log" 2>&1 </dev/null & server=$!; }
    start "$@"
    while read -r order; do
        case $order in
            stop) kill -QUIT $server; wait $server ;;
            start) start "$@" ;;
        esac
        echo done
    done
    kill -QUIT $server; wait $server; rm -rf "$dir"
"#;

/// A server.
pub struct Server {
    pub folder: PathBuf,
    supervisor: Mutex<Child>,
    next: AtomicUsize,
}

/// Returns the server of this process; `None` if PostgreSQL is not installed.
pub fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Server::start("off"));
    if server.is_none() {
        let why =
            "PostgreSQL is not installed (Debian: postgresql), or its initdb and postgres are not found";
        assert!(std::env::var_os("TRUNKLINE_MUST").is_none(), "{why}");
        eprintln!("skipped: {why}");
    }
    server.as_ref()
}

/// Finds the server's programs; Debian installs them outside of `PATH`.
fn programs() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders.into_iter().find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// PostgreSQL refuses to run as root; returns a command prefix that changes the user.
fn unprivileged() -> Vec<String> {
    if !nix::unistd::Uid::effective().is_root() {
        return Vec::new();
    }
    let has_user = |name: &str| nix::unistd::User::from_name(name).ok().flatten().is_some();
    let name = if has_user("postgres") { "postgres" } else { "nobody" };
    ["setpriv", "--reuid", name, "--clear-groups", "--"].map(String::from).into()
}

impl Server {
    /// Starts a server that a test may stop; `None` if PostgreSQL is not installed.
    pub fn own(fsync: &str) -> Option<Server> {
        server().and_then(|_| Server::start(fsync))
    }

    /// Creates and starts a server; `fsync` is `on` or `off`.
    pub fn start(fsync: &str) -> Option<Server> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("trunkline-pg").tempdir().unwrap().keep();
        let wrapped = unprivileged();
        let run = |program: &str| -> Vec<String> {
            let program = programs.join(program).to_str().unwrap().to_owned();
            wrapped.iter().cloned().chain([program]).collect()
        };
        if let Some(name) = wrapped.get(2) {
            let done = Command::new("chown").arg(name).arg(&folder).status().unwrap();
            assert!(done.success());
        }
        let (init, data) = (run("initdb"), folder.join("data"));
        let made = Command::new(&init[0])
            .args(&init[1..])
            .args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .current_dir("/")
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let rules = "local all locked scram-sha-256\nlocal all all trust\n";
        std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
        let supervisor = Command::new("sh")
            .args(["-c", SERVER_SCRIPT, "sh"])
            .arg(&folder)
            .args(run("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&folder)
            .args(["-c", "listen_addresses=", "-c", &format!("fsync={fsync}")])
            .args(["-c", "max_connections=300", "-c", "shared_buffers=16MB", "-c", "timezone=UTC"])
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let server = Server { folder, supervisor: Mutex::new(supervisor), next: AtomicUsize::new(0) };
        drop(server.client("postgres"));
        Some(server)
    }

    /// Returns the address of a database.
    pub fn url(&self, database: &str) -> String {
        self.url_as(USER, database)
    }

    /// Returns the address of a database for a user, which may include a password.
    pub fn url_as(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@/{database}?host={}", self.folder.display())
    }

    /// Creates an empty database and returns its address.
    pub fn database(&self) -> String {
        let name = format!("c{}_{}", std::process::id(), self.next.fetch_add(1, Ordering::Relaxed));
        self.client("postgres").batch(&format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Connects as soon as the server accepts connections.
    pub fn client(&self, database: &str) -> Client {
        let mut tries = 0;
        loop {
            match Client::open(&self.url(database)) {
                Ok(client) => return client,
                Err(why) if tries > 4_800 => panic!("{why}: {}", self.log()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            tries += 1;
        }
    }

    /// Stops the server immediately, without waiting for its clients.
    pub fn stop(&self) {
        self.send_command("stop");
    }

    /// Restarts the server.
    pub fn restart(&self) {
        self.send_command("start");
        drop(self.client("postgres"));
    }

    fn send_command(&self, command: &str) {
        use std::io::{Read, Write};
        let mut supervisor = self.supervisor.lock().unwrap();
        writeln!(supervisor.stdin.as_mut().unwrap(), "{command}").unwrap();
        supervisor.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut supervisor = self.supervisor.lock().unwrap();
        drop(supervisor.stdin.take());
        let _ = supervisor.wait();
    }
}

/// A connection for the tests.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Client {
    pub fn open(url: &str) -> Result<Client, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(url, tokio_postgres::NoTls).await.map_err(|e| e.to_string())?;
            tokio::spawn(connection);
            Ok::<_, String>(client)
        })?;
        Ok(Client { runtime, client })
    }

    pub fn batch(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub fn bytes(&self, sql: &str) -> Vec<u8> {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }

    pub fn put_bytes(&self, sql: &str, bytes: &[u8]) {
        assert_eq!(self.runtime.block_on(self.client.execute(sql, &[&bytes])).unwrap(), 1);
    }
}

/// Returns the database name of an address.
pub fn name(url: &str) -> &str {
    let path = url.split('?').next().unwrap_or_default();
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
