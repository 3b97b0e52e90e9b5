//! Identifiers of the objects that are requested.

/// `sysUpTime` (RFC 3418).
pub const UPTIME: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 3];
/// `sysDescr`.
pub const DESCRIPTION: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 1];
/// `sysContact`.
pub const CONTACT: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 4];
/// `sysName`.
pub const NAME: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 5];
/// `sysLocation`.
pub const LOCATION: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 6];

/// A column of `ifTable` (RFC 2863).
pub const fn if_entry(column: u32) -> [u32; 10] {
    [1, 3, 6, 1, 2, 1, 2, 2, 1, column]
}

/// A column of `ifXTable` (RFC 2863).
pub const fn if_x_entry(column: u32) -> [u32; 11] {
    [1, 3, 6, 1, 2, 1, 31, 1, 1, 1, column]
}

/// A column of `atmVclStatTable`: cells of virtual channels, by port, VPI and VCI (RFC 3606).
pub const fn vcl_stat(column: u32) -> [u32; 13] {
    [1, 3, 6, 1, 2, 1, 37, 1, 14, 1, 11, 1, column]
}

/// A column of `atmVplStatTable`: cells of virtual paths, by port and VPI (RFC 3606).
pub const fn vpl_stat(column: u32) -> [u32; 13] {
    [1, 3, 6, 1, 2, 1, 37, 1, 14, 1, 9, 1, column]
}

/// A column of `aal5VccTable`: errors of AAL5 connections, by port, VPI and VCI (RFC 2515).
pub const fn aal5_vcc(column: u32) -> [u32; 11] {
    [1, 3, 6, 1, 2, 1, 37, 1, 12, 1, column]
}

/// `ifType` of `softwareLoopback`, whose speed is meaningless.
pub const LOOPBACK: i32 = 24;
