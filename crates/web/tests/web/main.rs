//! The server and its page, over an archive that is made here.
//!
//! | module | what |
//! | --- | --- |
//! | [`made`] | archives with known traffic, and who writes on |
//! | [`http`] | plain HTTP, as a program speaks it |
//! | [`api`] | what is answered, and to whom |
//! | [`browser`] | Chromium, driven by WebDriver |
//! | [`page`] | what a person sees and does |

#![allow(clippy::disallowed_methods, reason = "waits for another program to have done what it does")]

mod api;
mod browser;
mod http;
mod made;
mod page;
