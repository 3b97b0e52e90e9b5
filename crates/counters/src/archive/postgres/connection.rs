//! A connection to a server. Every query has a timeout, and closing never blocks.

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

/// Timeout for authentication and session setup after the connection is established.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a query; the statement timeout of the server is shorter, so that it can report the reason.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Session settings: only names of the server itself, timely answers, and detection of a dead client within a minute,
/// because the client may hold the lock. Keepalive probes detect it on an idle connection, `tcp_user_timeout` while an
/// answer is sent (if the server has that setting).
const SETTINGS: &str = "
    SET search_path = pg_catalog;
    SET statement_timeout = '50s';
    SET lock_timeout = '2s';
    SET tcp_keepalives_idle = 30;
    SET tcp_keepalives_interval = 10;
    SET tcp_keepalives_count = 3;
    SELECT set_config(name, '60000', false) FROM pg_settings WHERE name = 'tcp_user_timeout';
";

#[derive(Debug)]
pub(super) struct PgConnection {
    /// `None` after the shutdown.
    runtime: Option<Runtime>,
    client: Client,
    statements: RefCell<BTreeMap<&'static str, Statement>>,
    /// Process identifier of the server's backend, and its start in microseconds since 1970.
    pub process: (i32, i64),
    /// The encoding of the database.
    pub encoding: String,
}

/// Why a query failed.
#[derive(Debug)]
pub(super) enum QueryError {
    /// An error of the server or of the client library.
    Postgres(Error),
    /// The query timed out.
    Timeout,
    /// The system has no resources for a connection.
    Io(io::Error),
}

pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

impl PgConnection {
    pub fn open(config: &Config) -> Result<PgConnection, QueryError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(QueryError::Io)?;
        let limit = config.get_connect_timeout().copied().unwrap_or_default() + LOGIN_TIMEOUT;
        let connected = runtime.block_on(async {
            let session = async {
                let (client, connection) = config.connect(NoTls).await?;
                // The next query reports the end of the connection.
                tokio::spawn(connection);
                client.batch_execute(SETTINGS).await?;
                let about = "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint,
                        current_setting('server_encoding') FROM pg_stat_activity WHERE pid = pg_backend_pid()";
                let row = client.query_one(about, &[]).await?;
                Ok((client, (row.try_get(0)?, row.try_get(1)?), row.try_get(2)?))
            };
            match timeout(limit, session).await {
                Ok(session) => session.map_err(QueryError::Postgres),
                Err(_) => Err(QueryError::Timeout),
            }
        });
        match connected {
            Ok((client, process, encoding)) => {
                let (runtime, statements) = (Some(runtime), RefCell::default());
                Ok(PgConnection { runtime, client, statements, process, encoding })
            }
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Waits for a query, at most [`QUERY_TIMEOUT`].
    pub fn wait<T>(&self, query: impl Future<Output = Result<T, Error>>) -> Result<T, QueryError> {
        let runtime = self.runtime.as_ref().expect("it is open until it is dropped");
        let answer = runtime.block_on(async { timeout(QUERY_TIMEOUT, query).await });
        answer.map_err(|_| QueryError::Timeout)?.map_err(QueryError::Postgres)
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

    /// Executes a statement and returns the number of changed rows.
    pub async fn execute(&self, sql: &'static str, params: &[Param<'_>]) -> Result<u64, Error> {
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, params).await
    }

    /// Executes statements without parameters and results.
    pub async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        // Dropping the runtime would block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl QueryError {
    /// Returns the cause as text.
    pub fn reason(&self) -> String {
        match self {
            QueryError::Postgres(error) => match (error.as_db_error(), error.source()) {
                (Some(server_error), _) => server_error.message().to_owned(),
                (None, Some(source)) => format!("{error}: {source}"),
                (None, None) => error.to_string(),
            },
            QueryError::Timeout => "the server does not respond".into(),
            QueryError::Io(error) => error.to_string(),
        }
    }

    pub fn code(&self) -> Option<&SqlState> {
        match self {
            QueryError::Postgres(error) => error.code(),
            _ => None,
        }
    }

    /// Returns whether the connection is unusable after the error.
    pub fn is_fatal(&self) -> bool {
        let QueryError::Postgres(error) = self else { return true };
        match error.as_db_error() {
            Some(server_error) => {
                let fatal = matches!(server_error.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
                let gone = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
                fatal || gone.contains(server_error.code())
            }
            None => error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>()),
        }
    }
}
