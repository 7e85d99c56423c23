//! An open regular file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::{pread, pwrite, retry_on_intr};

use super::error::FileError;
use super::open_files;
use super::quota::{FileId, Ledger, Quota};
use super::stat::Stat;

/// Most bytes that one call moves. The guest loops; between two turns it can be stopped.
pub(super) const TRANSFER_MAX: usize = 1 << 20;

/// Size up to which a read allocates its buffer without a query; for larger reads a query for the file's size pays off.
const UNASKED_MAX: usize = 16 << 10;

/// Files end here: offsets are signed on the host.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();

/// An open regular file, known to the ledger until it is dropped.
#[derive(Debug)]
pub(super) struct Handle {
    file: OwnedFd,
    id: FileId,
    quota: Arc<Quota>,
}

impl Handle {
    /// From here on the file counts as open. Whether it had lost its last name by then, its link count tells.
    pub(super) fn new(file: OwnedFd, id: FileId, quota: &Arc<Quota>) -> Self {
        open_files::opened(id);
        Self { file, id, quota: Arc::clone(quota) }
    }

    /// # Errors
    /// `Invalid` for an offset no file has, or what the host says.
    pub(super) fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, FileError> {
        if offset > OFFSET_MAX {
            return Err(FileError::Invalid);
        }
        let mut length = usize::try_from(length).unwrap_or(TRANSFER_MAX).min(TRANSFER_MAX);
        if length > UNASKED_MAX {
            let left = Stat::of(&self.file)?.size.saturating_sub(offset);
            length = length.min(usize::try_from(left).unwrap_or(length));
        }
        let mut data = Vec::with_capacity(length);
        if length > 0 {
            retry_on_intr(|| pread(&self.file, spare_capacity(&mut data), offset))?;
            // The allocator may have given more room than was asked for, and the host filled it.
            data.truncate(length);
        }
        Ok(data)
    }

    /// # Errors
    /// `FileTooLarge`, `Quota`, or what the host says.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<u32, FileError> {
        let mut ledger = self.quota.lock();
        let size = Stat::of(&self.file)?.size;
        self.write_locked(&mut ledger, size, offset, data)
    }

    /// # Errors
    /// As [`Handle::write`].
    pub(super) fn append(&self, data: &[u8]) -> Result<(u32, u64), FileError> {
        // Under the lock the end stays where it is. O_APPEND would not do: it makes Linux ignore every offset.
        let mut ledger = self.quota.lock();
        let size = Stat::of(&self.file)?.size;
        let written = self.write_locked(&mut ledger, size, size, data)?;
        Ok((written, size.saturating_add(u64::from(written))))
    }

    fn write_locked(&self, ledger: &mut Ledger, size: u64, offset: u64, data: &[u8]) -> Result<u32, FileError> {
        let data = data.get(..TRANSFER_MAX).unwrap_or(data);
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
        let end = end.ok_or(FileError::FileTooLarge)?;
        ledger.check_growth(size, end.max(size))?;
        let written = retry_on_intr(|| pwrite(&self.file, data, offset))?;
        ledger.resized(size, size.max(offset.saturating_add(written as u64)));
        // At most TRANSFER_MAX.
        u32::try_from(written).map_err(|_| FileError::Io)
    }

    /// Sets the size of the file and books the difference.
    ///
    /// # Errors
    /// `FileTooLarge`, `Quota`, or what the host says.
    pub(super) fn set_size(&self, size: u64) -> Result<(), FileError> {
        if size > OFFSET_MAX {
            return Err(FileError::FileTooLarge);
        }
        let mut ledger = self.quota.lock();
        let before = Stat::of(&self.file)?.size;
        ledger.check_growth(before, size)?;
        retry_on_intr(|| rustix::fs::ftruncate(&self.file, size))?;
        ledger.resized(before, size);
        Ok(())
    }

    /// # Errors
    /// What the host says.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.file))?)
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let size = || Stat::of(&self.file).map_or(0, |stat| stat.size);
        if let Some(payer) = open_files::closed(self.id) {
            payer.lock().resized(size(), 0);
        }
    }
}
