//! Limits of frames, windows, messages and FEC blocks.

/// Maximum window in frames. Four windows fit the 16 bits of a channel's sequence numbers.
pub const MAX_WINDOW: u16 = 8192;
/// Minimum frame length, in bytes.
pub const MIN_FRAME: u16 = 128;
/// Maximum frame length in bytes: a UDP datagram over IPv4.
pub const MAX_FRAME: u16 = 65_507;
/// Maximum message length, in bytes.
pub const MAX_MESSAGE: usize = 1 << 30;
/// Maximum number of frames in a block of forward error correction (FEC). The receiver stores a few blocks.
pub const MAX_BLOCK: u8 = 64;
/// Maximum number of repair frames of an FEC block.
pub const MAX_REPAIRS: u8 = 8;
/// Credit charged per chunk besides its bytes: the memory of an empty chunk.
pub const CHUNK_COST: u64 = 8;
