//! Which PDUs pass the token.

use trunkline_llc::wire::{Kind, Pdu};

/// Whether this PDU passes the token: unnumbered information to the token's SAP. The ring is not on the wire yet, so
/// which SAP that is must be said; none says that there is no token.
pub fn token(pdu: &Pdu<'_>, sap: Option<u8>) -> bool {
    pdu.kind == Kind::Ui && sap == Some(pdu.dsap)
}
