//! Files at the ends of a connection: the destination of a received file, and reading a file in pieces.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{EndError, file_error};

/// The destination of a received file.
#[derive(Debug)]
pub(crate) struct Sink {
    file: File,
    path: PathBuf,
    length: u64,
}

impl Sink {
    /// Creates the file and its folder.
    pub fn create(path: &Path) -> Result<Sink, EndError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(file_error("creating", folder))?;
        }
        let file = File::create(path).map_err(file_error("creating", path))?;
        Ok(Sink { file, path: path.to_owned(), length: 0 })
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), EndError> {
        self.write_at(self.length, bytes)
    }

    /// Writes bytes at an offset.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EndError> {
        self.file.write_all_at(bytes, offset).map_err(file_error("writing", &self.path))?;
        self.length = self.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Flushes the file to the disk, where the transfer ends.
    pub fn finish(self) -> Result<(), EndError> {
        self.file.sync_all().map_err(file_error("writing", &self.path))
    }
}

/// Reads until the buffer is full or the file ends; returns the number of bytes.
pub(crate) fn read_full(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}
