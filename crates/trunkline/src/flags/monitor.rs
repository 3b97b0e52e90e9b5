//! Flags of `trunkline monitor` and of `trunkline monitor poll`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::archives::CountersArchive;
use super::counters::{Capture, Export, Forward, Import, List};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Monitor {
    #[command(subcommand)]
    pub tool: Tool,
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Poll devices by SNMP, interfaces of this machine and hosts by ping, and store their counters
    ///
    /// Stores readings in an archive of counters; with --no-archive, prints rates instead. Reports when a device fails and
    /// when it recovers, and continues with the others. SIGTERM or Ctrl-C writes all readings and stops. Exit status: 0 when
    /// interrupted, or with --once if every device answered; 1 if one did not, or if polling or writing fails; 2 if the
    /// configuration or the usage is wrong.
    Poll(Poll),
    /// List the contents of an archive of counters: devices, tables, series, time range, size
    List(List),
    /// Export readings or aggregates of series as CSV or Parquet
    ///
    /// Exit status: 0 on success, 1 if reading or writing fails, 2 if the usage is wrong or no series matches.
    Export(Export),
    /// Import a CSV file, or the runs of an experiment, into an archive of counters
    ///
    /// A file with an error anywhere is rejected as a whole. Exit status: 0 on success, 1 if writing fails, 2 if the input
    /// or the usage is wrong.
    Import(Import),
    /// Count the packets of an interface or a capture by flow, into an archive of counters
    ///
    /// Each flow has octets and packets in both directions; `out` is the direction of its first packet. Exit status: 0 when
    /// interrupted or at the end of the file, 1 if capturing or writing fails, 2 if the input or the usage is wrong.
    Capture(Capture),
    /// Forward new readings of an archive of counters to Prometheus (remote write 1.0)
    ///
    /// Continues where the last run stopped. Exit status: 0 when interrupted, 1 if reading or sending fails, 2 if the usage
    /// is wrong.
    Forward(Forward),
}

#[derive(Debug, Args)]
pub struct Poll {
    /// Configuration of devices, a TOML file (docs/reference/monitor.md)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    pub archive: CountersArchive,
    /// Store nothing; print rates
    #[arg(long)]
    pub no_archive: bool,
    /// Poll every device once, print a table of devices and ports, and exit; stores readings only with --archive
    #[arg(long)]
    pub once: bool,
    /// Print only JSON, one object per line
    #[arg(long)]
    pub json: bool,
}
