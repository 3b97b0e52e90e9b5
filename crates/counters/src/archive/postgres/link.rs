//! A connection to a server: it waits for no answer for ever, and is never waited for when it ends.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, NoTls, Row, Statement};

/// For a server to let somebody in, once there is a connection.
const ENTRY: Duration = Duration::from_secs(20);
/// For an answer; the server gives up earlier, so that it can say why.
const ANSWER: Duration = Duration::from_secs(60);

/// What a session wants of its server: no names but those of the server itself, answers in time, and to notice within a
/// minute if this end is gone, because what it holds then has to be free: probes find that out where nothing is under way,
/// the last setting where an answer is, unless the server is too old to have it.
const SETTINGS: &str = "
    SET search_path = pg_catalog;
    SET statement_timeout = '50s';
    SET lock_timeout = '10s';
    SET tcp_keepalives_idle = 30;
    SET tcp_keepalives_interval = 10;
    SET tcp_keepalives_count = 3;
    SELECT set_config(name, '60000', false) FROM pg_settings WHERE name = 'tcp_user_timeout';
";

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    /// None once it is shut down.
    runtime: Option<Runtime>,
    client: Client,
    statements: RefCell<BTreeMap<&'static str, Statement>>,
    /// The server's process behind it, and when that began, microseconds since 1970.
    pub process: (i32, i64),
    /// How the database keeps texts.
    pub encoding: String,
}

/// What went wrong with a question.
#[derive(Debug)]
pub(super) enum Trouble {
    /// As it was told, or found here.
    Told(Error),
    /// No answer came in time.
    Silence,
    /// The system has no room for a connection.
    System(io::Error),
}

pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

impl Link {
    pub fn open(config: &Config) -> Result<Link, Trouble> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Trouble::System)?;
        let patience = config.get_connect_timeout().copied().unwrap_or_default() + ENTRY;
        let connected = runtime.block_on(async {
            let entered = async {
                let (client, connection) = config.connect(NoTls).await?;
                // Its end is told by the next question.
                tokio::spawn(connection);
                client.batch_execute(SETTINGS).await?;
                let about = "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint,
                        current_setting('server_encoding') FROM pg_stat_activity WHERE pid = pg_backend_pid()";
                let row = client.query_one(about, &[]).await?;
                Ok((client, (row.try_get(0)?, row.try_get(1)?), row.try_get(2)?))
            };
            match timeout(patience, entered).await {
                Ok(entered) => entered.map_err(Trouble::Told),
                Err(_) => Err(Trouble::Silence),
            }
        });
        let runtime = Some(runtime);
        match connected {
            Ok((client, process, encoding)) => {
                Ok(Link { runtime, client, statements: RefCell::default(), process, encoding })
            }
            Err(trouble) => {
                shut(runtime);
                Err(trouble)
            }
        }
    }

    /// Waits for what is asked.
    pub fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
        let runtime = self.runtime.as_ref().expect("it is open until it is dropped");
        let answer = runtime.block_on(async { timeout(ANSWER, asked).await });
        answer.map_err(|_| Trouble::Silence)?.map_err(Trouble::Told)
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(known) = self.statements.borrow().get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }

    pub async fn rows(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, params).await
    }

    pub async fn row(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Option<Row>, Error> {
        let statement = self.statement(sql).await?;
        self.client.query_opt(&statement, params).await
    }

    /// How many rows it changed.
    pub async fn execute(&self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, Error> {
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, params).await
    }

    /// Statements without parameters, and without an answer.
    pub async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        shut(self.runtime.take());
    }
}

/// Also where nobody may wait, as a runtime that is dropped would.
fn shut(runtime: Option<Runtime>) {
    if let Some(runtime) = runtime {
        runtime.shutdown_background();
    }
}

impl Trouble {
    /// In words.
    pub fn reason(&self) -> String {
        match self {
            Trouble::Told(error) => match (error.as_db_error(), error.source()) {
                (Some(told), _) => told.message().to_owned(),
                (None, Some(source)) => format!("{error}: {source}"),
                (None, None) => error.to_string(),
            },
            Trouble::Silence => "the server does not answer".into(),
            Trouble::System(error) => error.to_string(),
        }
    }

    pub fn code(&self) -> Option<&SqlState> {
        match self {
            Trouble::Told(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the connection is of no use any more, as far as the error tells.
    pub fn ends_it(&self) -> bool {
        let Trouble::Told(error) = self else { return true };
        match error.as_db_error() {
            Some(told) => {
                let fatal = matches!(told.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
                let gone = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
                fatal || gone.contains(told.code())
            }
            None => error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>()),
        }
    }
}
