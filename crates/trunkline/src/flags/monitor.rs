//! Flags of `trunkline monitor`.

use clap::{Args, Subcommand};

use super::counters::{Capture, Export, Import, List};

#[derive(Debug, Args)]
pub struct Monitor {
    #[command(subcommand)]
    pub action: MonitorAction,
}

#[derive(Debug, Subcommand)]
pub enum MonitorAction {
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
