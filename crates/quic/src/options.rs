//! Options of a connection. Both ends need the same.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{MtuDiscoveryConfig, TransportConfig, VarInt};

/// The smallest MTU of UDP payloads that QUIC needs (RFC 9000 section 14).
pub const MIN_MTU: u16 = 1200;
/// The longest message in a datagram that every path carries: an MTU of 1,200 bytes less the headers.
pub const MAX_DATAGRAM_MESSAGE: usize = 1162;
/// Silence after which a client sends a packet, so that the connection stays open.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 9002 section 7).
    Reno,
    /// BBR version 1. Its implementation draws random numbers from the system, so a simulated run could not be repeated.
    Bbr,
}

/// Options of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The congestion control of what this end sends.
    pub congestion: Congestion,
    /// Bytes that this end buffers until they are acknowledged; none: 10 MB.
    pub send_window: Option<u64>,
    /// Bytes that the peer may send before this end has read them, per stream and in total; none: 1.25 MB per stream.
    pub receive_window: Option<u32>,
    /// Number of bidirectional streams, at least 1.
    pub streams: u32,
    /// The largest UDP payload that path MTU discovery tries, at least [`MIN_MTU`].
    pub max_mtu: u16,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            congestion: Congestion::Cubic,
            send_window: None,
            receive_window: None,
            streams: 1,
            max_mtu: 1452,
        }
    }
}

impl Options {
    /// Returns the configuration for `quinn-proto`.
    pub(crate) fn transport(&self, is_client: bool) -> Arc<TransportConfig> {
        let mut transport = TransportConfig::default();
        let controller: Arc<dyn ControllerFactory + Send + Sync> = match self.congestion {
            Congestion::Cubic => Arc::new(CubicConfig::default()),
            Congestion::Reno => Arc::new(NewRenoConfig::default()),
            Congestion::Bbr => Arc::new(BbrConfig::default()),
        };
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.max_mtu.max(MIN_MTU));
        transport
            .congestion_controller_factory(controller)
            .max_concurrent_bidi_streams(self.streams.max(1).into())
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .mtu_discovery_config(Some(discovery))
            .keep_alive_interval(is_client.then_some(KEEP_ALIVE));
        if let Some(bytes) = self.send_window {
            transport.send_window(bytes).datagram_send_buffer_size(bytes.try_into().unwrap_or(usize::MAX));
        }
        if let Some(bytes) = self.receive_window {
            let window = VarInt::from_u32(bytes);
            transport.receive_window(window).stream_receive_window(window);
            transport.datagram_receive_buffer_size(Some(bytes as usize));
        }
        Arc::new(transport)
    }
}
