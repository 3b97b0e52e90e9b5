//! Files at the ends of a connection: the one that is sent, and the destination of a received one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::reports::SenderReport;

use super::{EndContext, EndError, file_error};

/// The destination of a received file.
#[derive(Debug)]
pub(crate) struct Sink {
    file: File,
    path: PathBuf,
    length: u64,
    max_length: u64,
    is_truncated: bool,
}

impl Sink {
    /// Creates the file and its folder. It can have at most `max_length` bytes.
    pub fn create(path: &Path, max_length: Option<u64>) -> Result<Sink, EndError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(file_error("creating", folder))?;
        }
        // What was there before remains until the first byte: the sender may be refused.
        let options = File::options().write(true).create(true).truncate(false).open(path);
        let file = options.map_err(file_error("creating", path))?;
        Ok(Sink {
            file,
            path: path.to_owned(),
            length: 0,
            max_length: max_length.unwrap_or(u64::MAX),
            is_truncated: false,
        })
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), EndError> {
        self.write_at(self.length, bytes)
    }

    /// Writes bytes at an offset.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EndError> {
        if !std::mem::replace(&mut self.is_truncated, true) {
            self.file.set_len(0).map_err(file_error("writing", &self.path))?;
        }
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.max_length);
        let end = end.ok_or(EndError::FileTooLong(self.max_length))?;
        self.file.write_all_at(bytes, offset).map_err(file_error("writing", &self.path))?;
        self.length = self.length.max(end);
        Ok(())
    }

    /// Flushes the file to the disk, where the transfer ends.
    pub fn finish(mut self) -> Result<(), EndError> {
        self.append(&[])?;
        self.file.sync_all().map_err(file_error("writing", &self.path))
    }
}

/// The file that a sender reads.
pub(crate) struct SourceFile {
    file: File,
    path: PathBuf,
}

impl SourceFile {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<SourceFile, EndError> {
        let file = File::open(path).map_err(file_error("opening", path))?;
        Ok(SourceFile { file, path: path.to_owned() })
    }

    /// Reads the payload of the next message, of at most `size` bytes with its header, behind space for the header.
    /// Returns the length of the message, or `None` at the end of the file.
    pub fn read_message(&mut self, size: u32, buffer: &mut Vec<u8>) -> Result<Option<u32>, EndError> {
        buffer.resize(size as usize, 0);
        let mut length = HEADER;
        while length < buffer.len() {
            match self.file.read(&mut buffer[length..]).map_err(file_error("reading", &self.path))? {
                0 => break,
                n => length += n,
            }
        }
        buffer.truncate(length);
        Ok((length > HEADER).then_some(length as u32))
    }

    /// Reads the next message behind this header and a checksum. Returns its length, or `None` at the end of the file.
    pub fn encode_message(
        &mut self,
        context: &EndContext,
        header: Header,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<u32>, EndError> {
        let length = self.read_message(header.length, buffer)?;
        if let Some(length) = length {
            let header = Header { length, response_length: 0, kind: MessageKind::Checked, ..header };
            header.encode_checked(context.spec.token, buffer);
        }
        Ok(length)
    }
}

/// Adds the bytes of the sent file to the report.
pub(crate) fn add_file_bytes(report: &mut SenderReport) {
    let file_bytes = report.bytes - report.messages * HEADER as u64;
    report.counters.insert("file_bytes".into(), file_bytes as f64);
}
