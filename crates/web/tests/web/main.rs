//! Integration tests of the server and its page, over generated archives.
//!
//! | module | contents |
//! | --- | --- |
//! | [`fixture`] | archives with known traffic, and their writer |
//! | [`http`] | a minimal HTTP client |
//! | [`api`] | the JSON interface and access control |
//! | [`browser`] | Chromium controlled by WebDriver |
//! | [`page`] | the page in Chromium |

#![allow(clippy::disallowed_methods, reason = "waits for other processes")]

mod api;
mod browser;
mod fixture;
mod http;
mod page;
