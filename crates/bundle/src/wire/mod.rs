//! Wire formats.
//!
//! | module | contents |
//! | --- | --- |
//! | [`classic`] | bundle format 1 (classic), byte for byte as in 1997 |
//! | [`format2`] | bundle format 2: any number of hosts, valid DIS |
//! | [`dis`] | DIS PDUs, located but not decoded |

pub mod classic;
pub mod dis;
pub mod format2;
