//! The key of authenticated mode, in a file.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use trunkline_stamp::Key;

use crate::failure::Failure;

/// Fewest octets of a key: as many as of an HMAC.
const MIN_OCTETS: usize = 16;
/// Most bytes of a file that are read.
const MAX_BYTES: u64 = 4096;

/// Reads a key, if a file is given.
pub fn read(path: Option<&Path>) -> Result<Option<Key>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let fail = |reason: String| Failure::input(format!("{}: {reason}", path.display()));
    let file = fs::File::open(path).map_err(|e| fail(e.to_string()))?;
    let mode = file.metadata().map_err(|e| fail(e.to_string()))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(fail(format!("other users have access (mode {mode:04o}): run chmod 600")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|e| fail(e.to_string()))?;
    let octets = octets(text.trim()).filter(|octets| octets.len() >= MIN_OCTETS);
    let octets =
        octets.ok_or_else(|| fail("expected at least 32 hexadecimal digits, two for each octet".into()))?;
    Ok(Some(Key::new(&octets)))
}

fn octets(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_pairs_of_digits() {
        assert_eq!(octets("00fFa9"), Some(vec![0, 255, 0xa9]));
        for wrong in ["0", "0g", "00 11", "+1"] {
            assert_eq!(octets(wrong), None, "{wrong}");
        }
    }
}
