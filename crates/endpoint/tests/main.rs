//! The integration tests of the endpoint crate.
//!
//! | module | subject |
//! | --- | --- |
//! | `contract` | violations of the endpoint contract are detected |
//! | `echo` | the echo protocol |

mod contract;
mod echo;
