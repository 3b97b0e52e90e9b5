//! Sizes that a controller on another host may request: of messages, responses, buffers and memory.

use trunkline_experiment::message_sizes;
use trunkline_experiment::plan::Protocol;
use trunkline_traffic::{Law, Pattern, Variable};
use trunkline_units::{Size, Span};

use super::LimitError;
use crate::wire::EndSpec;

/// Maximum size of a socket buffer or window.
pub(super) const MAX_BUFFER: u64 = 64 << 20;
/// Maximum length of a message: it is sent at once, however low the rate limit is.
pub(crate) const MAX_MESSAGE: u32 = 1 << 20;
/// Memory of any end: a stack of 2 MiB, buffers of messages, and measurements, of which samples over time take up to 1.2 MiB,
/// twice when they are reported.
pub(super) const END_MEMORY: u64 = 6 << 20;
/// A variable counts as too large if more than this share of its values are.
const RARE: f64 = 1e-9;
/// Minimum interval of reports.
pub(super) const MIN_REPORT_INTERVAL: Span = Span::from_ms(20);

/// Returns about how many bytes of memory an end needs, with the buffers that it requests.
pub(crate) fn memory(spec: &EndSpec) -> u64 {
    let buffers = buffers(spec).into_iter().flatten().map(Size::as_bytes);
    buffers.fold(END_MEMORY.saturating_add(spec.pattern.memory()), u64::saturating_add)
}

/// Returns the sizes of buffers and windows that an end requests.
fn buffers(spec: &EndSpec) -> [Option<Size>; 2] {
    let window = match &spec.protocol {
        Protocol::Tcp { window, .. } | Protocol::Quic { window, .. } => *window,
        _ => None,
    };
    [spec.buffer, window]
}

/// Checks sizes that would cost memory, or that the rate limit could not divide.
pub(super) fn check_sizes(spec: &EndSpec) -> Result<(), LimitError> {
    if let Protocol::Quic { streams, mtu, .. } = &spec.protocol
        && !((1..=256).contains(streams) && (1200..=65_507).contains(&mtu.as_bytes()))
    {
        return Err(LimitError::Quic);
    }
    if buffers(spec).iter().flatten().any(|size| size.as_bytes() > MAX_BUFFER) {
        return Err(LimitError::Buffer);
    }
    if spec.report_interval.is_some_and(|interval| interval < MIN_REPORT_INTERVAL) {
        return Err(LimitError::ReportInterval);
    }
    let sizes = message_sizes(&spec.pattern);
    let mut sizes = sizes.iter().filter(|(option, _)| *option != "response");
    let has_long_record = matches!(&spec.pattern, Pattern::Replay { recording, .. }
        if is_stream(&spec.protocol) && recording.largest() > MAX_MESSAGE);
    if has_long_record || sizes.any(|(_, size)| is_too_long(size, &spec.protocol)) {
        return Err(LimitError::Message);
    }
    check_responses(spec)
}

/// Checks the sizes of responses: `tcp` and `quic` divide them.
fn check_responses(spec: &EndSpec) -> Result<(), LimitError> {
    if !matches!(spec.protocol, Protocol::Guaranteed { .. }) {
        return Ok(());
    }
    let is_permitted = match &spec.pattern {
        Pattern::Request { response_bytes, .. } => !is_too_long(response_bytes, &spec.protocol),
        // Its responses follow from several parameters, and may have any length.
        Pattern::Application { model, .. } if model.definition().needs_stream => false,
        Pattern::Application { parameters, .. } => {
            let mut responses = parameters.iter().filter(|(name, _)| name == "response" || name == "report");
            responses.all(|(_, size)| !is_too_long(size, &spec.protocol))
        }
        _ => true,
    };
    if is_permitted { Ok(()) } else { Err(LimitError::Response) }
}

fn is_stream(protocol: &Protocol) -> bool {
    matches!(
        protocol,
        Protocol::Tcp { .. } | Protocol::Guaranteed { .. } | Protocol::Quic { datagrams: false, .. }
    )
}

/// Returns whether a message of this size may be too long. Datagrams are shortened on every host.
fn is_too_long(size: &Variable, protocol: &Protocol) -> bool {
    let max = f64::from(MAX_MESSAGE);
    match size {
        Variable::Constant(size) => *size > max,
        _ if !is_stream(protocol) => false,
        // An invalid variable is refused when the end opens.
        size => Law::new(size.clone(), 1.0).is_ok_and(|law| law.quantile(1.0 - RARE) > max),
    }
}
