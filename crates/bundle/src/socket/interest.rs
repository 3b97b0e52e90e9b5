//! The commands by which a host joins and leaves addresses in either format.

use crate::api::{CommandError, HostCommand};
use crate::settings::Settings;

/// Returns the command that joins or leaves the addresses `first` to `last`.
///
/// # Errors
/// [`CommandError::Format`] if the format lacks an address. In format 1 (classic) a command has exactly one address.
pub(super) fn interest_command(
    settings: &Settings,
    first: u32,
    last: u32,
    joins: bool,
) -> Result<HostCommand<'static>, CommandError> {
    let classic = |address| u16::try_from(address).map_err(|_| CommandError::Format);
    Ok(match (settings.format2(), joins) {
        (Some(_), true) => HostCommand::JoinRange { first, last },
        (Some(_), false) => HostCommand::DropRange { first, last },
        (None, _) if first != last => return Err(CommandError::Format),
        (None, true) => HostCommand::Join(classic(first)?),
        (None, false) => HostCommand::Drop(classic(first)?),
    })
}
