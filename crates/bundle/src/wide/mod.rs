//! The three endpoints in the wide format (docs/bundle-wire.md).
