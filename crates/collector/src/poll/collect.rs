//! Runs all polling tasks on one thread, until they are stopped.

use std::io;
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::device::Device;
use super::machine;
use super::ping;
use super::report::{Context, ReportSender};
use super::{AnchoredClock, Config};
use crate::time::phase;

/// Stops a [`Collector`], from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// Requests the stop; outstanding polls are cancelled.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Polls everything that a configuration names, on the thread that calls [`run`](Collector::run).
#[derive(Debug)]
pub struct Collector {
    config: Config,
    context: Context,
    stop: watch::Receiver<bool>,
}

impl Collector {
    /// Creates a collector that sends its reports to `sink`, and a handle that stops it.
    pub fn new(config: Config, clock: AnchoredClock, sink: ReportSender) -> (Collector, Stop) {
        let (sender, stop) = watch::channel(false);
        (Collector { config, context: Context { clock, sink }, stop }, Stop(Arc::new(sender)))
    }

    /// Polls until it is stopped; with `once`, polls everything once.
    ///
    /// # Errors
    /// Returns an error if the ICMP sockets cannot be opened.
    pub fn run(self, once: bool) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let Collector { config, context, mut stop } = self;
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let count = config.devices.len() + config.machines.len() + config.pings.len();
            let (mut number, mut position) = (0, 0);
            for device in config.devices.into_iter().map(Arc::new) {
                let device = Device::new(device, context.clone(), &mut number, phase(position, count));
                tasks.spawn(device.run(once));
                position += 1;
            }
            for one in config.machines {
                tasks.spawn(machine::run(one, context.clone(), number, phase(position, count), once));
                (number, position) = (number + 1, position + 1);
            }
            let pings = ping::Pings::open(&config.pings)?;
            pings.spawn_listeners(&mut tasks, context.clock);
            for one in config.pings {
                let task =
                    ping::run(one, pings.clone(), context.clone(), number, phase(position, count), once);
                tasks.spawn(task);
                (number, position) = (number + 1, position + 1);
            }
            // The tasks that receive echo replies never end by themselves.
            let listeners = pings.listener_count();
            loop {
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => break,
                    ended = tasks.join_next() => {
                        if let Some(Err(error)) = ended && error.is_panic() {
                            std::panic::resume_unwind(error.into_panic());
                        }
                        if tasks.len() <= listeners {
                            break;
                        }
                    }
                }
            }
            tasks.shutdown().await;
            Ok(())
        })
    }
}
