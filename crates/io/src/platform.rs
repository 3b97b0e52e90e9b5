//! What the operating system lacks.

/// Measures and functions that work on Linux and not on this system; empty on Linux. The record of a live run has them, and
/// `docs/reference/agents.md` explains them.
pub const MISSING: &[&str] = if cfg!(target_os = "linux") { &[] } else { &[] };
