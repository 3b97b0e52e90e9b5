//! Flags of the flow monitor.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use trunkline_counters::archive::Location;

use super::counters::{Capture, Export, Import, List};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Monitor {
    #[command(subcommand)]
    pub tool: Tool,
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Poll devices by SNMP, this machine's interfaces and hosts that are pinged, and keep what they tell
    ///
    /// Without an archive rates go to the terminal as they come. It ends on SIGTERM or Ctrl-C with everything written. What
    /// is wrong with a device is told when it begins, changes and ends, and ends nothing. Exit status 0 if it was ended, or
    /// with --once everything answered; 1 if not, or it cannot poll or write; 2 if the configuration or the usage is wrong.
    Poll(Poll),
    /// List what an archive of counters holds: devices, tables, series, from when to when, bytes
    List(List),
    /// Write readings or views of series as CSV or Parquet
    ///
    /// Exit status 0 if all went well, 1 if something could not be read or written, 2 if the usage is wrong or no series is
    /// meant.
    Export(Export),
    /// Read a CSV file, or the runs of an experiment, into an archive of counters
    ///
    /// A file that is wrong anywhere is refused as a whole. Exit status 0 if all went well, 1 if something could not be
    /// written, 2 if the input or the usage is wrong.
    Import(Import),
    /// Account the packets of an interface or a capture by flow, into an archive of counters
    ///
    /// Each flow has octets and packets both ways: `out` from the end that was seen sending first. Exit status 0 if it was
    /// ended, or the file was read, 1 if it cannot watch or write, 2 if the input or the usage is wrong.
    Capture(Capture),
    /// Send what comes into an archive of counters on to a Prometheus server or its like (remote write 1.0)
    ///
    /// It goes on where it stopped. Exit status 0 if it was ended, 1 if something could not be read or sent, 2 if the usage
    /// is wrong.
    #[cfg(feature = "forward")]
    Forward(super::counters::Forward),
}

#[derive(Debug, Args)]
pub struct Poll {
    /// What is polled: a TOML file (docs/monitor.md)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// The archive of counters to write into, a file or postgres://USER@HOST/NAME [default: that of the configuration, if
    /// it names one]
    #[arg(long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub archive: Option<Location>,
    /// Poll everything once, print a table of devices and ports, and end
    #[arg(long)]
    pub once: bool,
    /// Print JSON, an object a line, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}
