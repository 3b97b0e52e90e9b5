//! A token passed among stations on a broadcast line; its holder may send one packet.
//!
//! | module | contents |
//! | --- | --- |
//! | [`ring`] | [`Ring`], the endpoint that wraps another one |
//! | [`options`] | options of a ring, and [`Line`], the properties of its line |
//! | [`api`] | commands, events and counters |
//! | [`frame`] | ring control frames |
//! | [`members`] | membership of a ring |
//!
//! # How it works
//!
//! Every token is a broadcast with its destination, its identity and the members, so all stations know them, and the
//! successor's own pass acknowledges it at no cost. A station that receives the token sends at most one packet and
//! passes the token to the member with the next higher number, cyclically.
//!
//! **Priorities** follow the timed token of IEEE 802.4: the packet is the most urgent one of the inner endpoint, and
//! is sent if its priority has no target or the rotation was shorter than the priority's
//! [target](Options::rotation_targets). A late token thus carries only urgent traffic.
//!
//! **A lost token.** The sender of a token is responsible for it until it sees a newer one, or a window of the
//! successor. After [`pass_timeout`](Options::pass_timeout) it sends the token again; after [`tries`](Options::tries)
//! it considers the successor dead and passes the token to the next member. If the responsible station has died too,
//! the members see no token for [`silence`](Options::silence); then the member after the last known holder issues a
//! new token, and the following members would a slot later each.
//!
//! **A second token.** Tokens are ordered by generation, owner and sequence ([`Key`](frame::Key)). Each station
//! remembers the newest one, accepts no older one, and gives up its own when it sees a newer one. A station that is
//! no longer a member joins again. After a network partition heals, the part with the newer token continues and the
//! stations of the other join it.
//!
//! **Joining.** Every [`window_interval`](Options::window_interval) at most, the member with the lowest number opens
//! a window when it has the token: it names the first of some nonmembers and waits; each of them has a slot to ask to
//! join. A station that sees no ring starts one alone.
//!
//! **A pause.** A program may be suspended. When it continues with an old token it sends at most one packet out of
//! turn, and the token it passes is too old for all others. A timer that fires more than a
//! [`pass_timeout`](Options::pass_timeout) late is distrusted: frames received meanwhile are processed first.
//!
//! [`admit`](crate::admit) computes the resulting bound on delay.
//!
//! # What it does not mend
//!
//! A station that receives but cannot be received is found dead and keeps asking to join. One that sends but does not
//! receive disturbs the ring once and is then alone; if it is so from its start, and other stations start at the same
//! moment, it may keep them from forming a ring. Two stations with the same number are not detected.

pub mod api;
pub mod frame;
pub mod members;
pub mod options;
pub mod ring;

pub use api::{Command, Event, HasUrgency, Repair, Statistics};
pub use members::Members;
pub use options::{Line, Options};
pub use ring::Ring;
