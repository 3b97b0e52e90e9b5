//! Counters of network devices: what their readings mean, and the archive that stores them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`counter`] | readings of counters: growth with bounds, or the event that makes growth unknown |
//! | [`archive`] | every reading, compressed, in SQLite or PostgreSQL; views that lose no peak |

pub mod archive;
pub mod counter;
