//! A token, passed among stations over a line that all of them hear: who has it may send one packet.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`ring`] | [`Ring`], the endpoint around another one |
//! | [`options`] | what a ring is like, and [`Line`], what its line is like |
//! | [`talk`] | what a ring is asked, and what it tells |
//! | [`frame`] | the frames that keep the ring, byte for byte |
//! | [`members`] | who is in the ring |
//!
//! # How it works
//!
//! Every token is a broadcast. It says whom it is for, which token it is, and who is in the ring; so all know all
//! of that always, and hearing the successor pass it on is the acknowledgement, which costs nothing. A station that
//! gets it sends at most one packet and passes it to the member with the next higher number, the last to the first.
//!
//! **Priorities** are those of a timed token (IEEE 802.4): the packet is the most urgent one that the endpoint inside
//! has, and leaves if its priority always may or the token came round in less than the priority's
//! [target](Options::targets). Late tokens so take what is not urgent off the ring.
//!
//! **A lost token.** Who passed it on is answerable for it until it hears a newer one, or a window of the
//! successor. After [`patience`](Options::patience) it sends it again; after [`tries`](Options::tries) it takes the
//! successor for dead and passes it to the one behind. If nobody is answerable any more (it died too), the members
//! hear nothing for [`silence`](Options::silence); then the next behind the last known holder makes a new token,
//! and those behind it, a slot apart, would if it did not.
//!
//! **A second token.** Tokens are ordered by generation, owner and sequence ([`Key`](frame::Key)). Each station
//! keeps the newest that it heard of, takes no older one, and gives up the one it holds when it hears a newer one.
//! A station that finds itself no more among the members joins again. When a network that was cut in two heals, so
//! does the ring: the newer token's part goes on and the other's stations join it.
//!
//! **Joining.** Now and then ([`every`](Options::every)) the member with the lowest number, having got the token,
//! opens a window: it names the first of some stations that are not members and waits; each of them that wants to
//! join has a slot of its own to say so. A station that hears of no ring at all begins one of its own, alone.
//!
//! **A pause.** A program may be kept from running. One that comes back with an old token sends at most one packet
//! out of its turn, and the token that it passes on is too old for everybody. A timer that comes later than a whole
//! [`patience`](Options::patience) is not believed: what came meanwhile is heard first.
//!
//! What delay that bounds, and why, is in [`admit`](crate::admit).
//!
//! # What it does not mend
//!
//! A station that hears but is not heard is found dead and goes on asking to join. One that is heard but does not
//! hear disturbs the ring once, and is then alone; only if it is so from its first moment on, and other stations
//! begin at that moment too, it may keep them from forming a ring. Two stations of one number are not found out.

pub mod frame;
pub mod members;
pub mod options;
pub mod ring;
pub mod talk;

pub use members::Members;
pub use options::{Line, Options};
pub use ring::Ring;
pub use talk::{Command, Event, Repair, Statistics, Urgent};
