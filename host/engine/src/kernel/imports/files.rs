//! The `files` imports: [`Files`](cellar_files::Files) in the words of the kernel world.

use cellar_files::{self as tree, FileError, FileKind, OpenHow, Stat};

use crate::kernel::{
    border::files::{self, Descriptor, DirectoryEntry, ErrorCode, FileStat, FileType, OpenFlags},
    record::Import,
    state::StoreData,
};

/// Outer: a trap, which no file operation causes. Inner: what the guest sees.
type Answer<T> = wasmtime::Result<Result<T, ErrorCode>>;

/// Bytes read or written in one call; guests loop.
const CHUNK_BYTES_MAX: u32 = 1 << 20;

fn answer<T, U>(result: Result<T, FileError>) -> Answer<U>
where
    U: From<T>,
{
    Ok(result.map(U::from).map_err(ErrorCode::from))
}

impl From<FileError> for ErrorCode {
    fn from(error: FileError) -> ErrorCode {
        match error {
            FileError::Access => ErrorCode::Access,
            FileError::BadDescriptor => ErrorCode::BadDescriptor,
            FileError::Busy => ErrorCode::Busy,
            FileError::Exists => ErrorCode::Exists,
            FileError::FileTooLarge => ErrorCode::FileTooLarge,
            FileError::Interrupted => ErrorCode::Interrupted,
            FileError::Invalid => ErrorCode::Invalid,
            FileError::Io => ErrorCode::Io,
            FileError::IsDirectory => ErrorCode::IsDirectory,
            FileError::Loop => ErrorCode::Loop,
            FileError::NameTooLong => ErrorCode::NameTooLong,
            FileError::NotCapable => ErrorCode::NotCapable,
            FileError::NotDirectory => ErrorCode::NotDirectory,
            FileError::NotEmpty => ErrorCode::NotEmpty,
            FileError::NotFound => ErrorCode::NotFound,
            FileError::NotPermitted => ErrorCode::NotPermitted,
            FileError::NotSupported => ErrorCode::NotSupported,
            FileError::Quota => ErrorCode::Quota,
            FileError::ReadOnly => ErrorCode::ReadOnly,
            FileError::TooManyLinks => ErrorCode::TooManyLinks,
            FileError::TooManyOpen => ErrorCode::TooManyOpen,
            FileError::CrossDevice => ErrorCode::CrossDevice,
        }
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> FileType {
        match kind {
            FileKind::Unknown => FileType::Unknown,
            FileKind::Directory => FileType::Directory,
            FileKind::RegularFile => FileType::RegularFile,
            FileKind::SymbolicLink => FileType::SymbolicLink,
        }
    }
}

impl From<Stat> for FileStat {
    fn from(stat: Stat) -> FileStat {
        FileStat {
            device: stat.device,
            inode: stat.inode,
            file_type: stat.kind.into(),
            links: stat.links,
            size: stat.size,
            accessed: stat.accessed,
            modified: stat.modified,
            changed: stat.changed,
        }
    }
}

fn open_how(flags: OpenFlags) -> OpenHow {
    OpenHow {
        create: flags.contains(OpenFlags::CREATE),
        directory: flags.contains(OpenFlags::DIRECTORY),
        exclusive: flags.contains(OpenFlags::EXCLUSIVE),
        truncate: flags.contains(OpenFlags::TRUNCATE),
        follow_symlinks: flags.contains(OpenFlags::FOLLOW_SYMLINKS),
        read: flags.contains(OpenFlags::READ),
        write: flags.contains(OpenFlags::WRITE),
        append: flags.contains(OpenFlags::APPEND),
    }
}

fn directory_entry(entry: tree::DirectoryEntry) -> DirectoryEntry {
    DirectoryEntry { name: entry.name, inode: entry.inode, file_type: entry.kind.into() }
}

impl files::Host for StoreData {
    fn open(&mut self, dir: Descriptor, path: String, how: OpenFlags) -> Answer<Descriptor> {
        let how = open_how(how);
        self.taped(Import::Open, (dir, &path, how), |data| answer(data.binding.files.open(dir, &path, how)))
    }

    fn close(&mut self, file: Descriptor) -> Answer<()> {
        self.taped(Import::Close, file, |data| answer(data.binding.files.close(file)))
    }

    fn read(&mut self, file: Descriptor, offset: u64, length: u32) -> Answer<Vec<u8>> {
        self.taped(Import::Read, (file, offset, length), |data| {
            answer(data.binding.files.read(file, offset, length.min(CHUNK_BYTES_MAX)))
        })
    }

    fn write(&mut self, file: Descriptor, offset: u64, data: Vec<u8>) -> Answer<u32> {
        self.taped(Import::Write, (file, offset, &data), |host| answer(host.binding.files.write(file, offset, &data)))
    }

    fn append(&mut self, file: Descriptor, data: Vec<u8>) -> Answer<(u32, u64)> {
        self.taped(Import::Append, (file, &data), |host| answer(host.binding.files.append(file, &data)))
    }

    fn sync(&mut self, file: Descriptor) -> Answer<()> {
        self.taped(Import::Sync, file, |data| answer(data.binding.files.sync(file)))
    }

    fn stat(&mut self, file: Descriptor) -> Answer<FileStat> {
        self.taped(Import::Stat, file, |data| answer(data.binding.files.stat(file)))
    }

    fn stat_at(&mut self, dir: Descriptor, path: String, follow_symlinks: bool) -> Answer<FileStat> {
        self.taped(Import::StatAt, (dir, &path, follow_symlinks), |data| {
            answer(data.binding.files.stat_at(dir, &path, follow_symlinks))
        })
    }

    fn set_size(&mut self, file: Descriptor, size: u64) -> Answer<()> {
        self.taped(Import::SetSize, (file, size), |data| answer(data.binding.files.set_size(file, size)))
    }

    fn set_times(&mut self, file: Descriptor, accessed: Option<u64>, modified: Option<u64>) -> Answer<()> {
        self.taped(Import::SetTimes, (file, accessed, modified), |data| {
            answer(data.binding.files.set_times(file, accessed, modified))
        })
    }

    fn set_times_at(
        &mut self,
        dir: Descriptor,
        path: String,
        follow_symlinks: bool,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Answer<()> {
        self.taped(Import::SetTimesAt, (dir, &path, follow_symlinks, accessed, modified), |data| {
            answer(data.binding.files.set_times_at(dir, &path, follow_symlinks, accessed, modified))
        })
    }

    fn read_directory(&mut self, dir: Descriptor, skip: u64) -> Answer<Vec<DirectoryEntry>> {
        self.taped(Import::ReadDirectory, (dir, skip), |data| {
            let entries = data.binding.files.read_directory(dir, skip);
            answer(entries.map(|entries| entries.into_iter().map(directory_entry).collect::<Vec<_>>()))
        })
    }

    fn create_directory(&mut self, dir: Descriptor, path: String) -> Answer<()> {
        self.taped(Import::CreateDirectory, (dir, &path), |data| {
            answer(data.binding.files.create_directory(dir, &path))
        })
    }

    fn remove_directory(&mut self, dir: Descriptor, path: String) -> Answer<()> {
        self.taped(Import::RemoveDirectory, (dir, &path), |data| {
            answer(data.binding.files.remove_directory(dir, &path))
        })
    }

    fn remove_file(&mut self, dir: Descriptor, path: String) -> Answer<()> {
        self.taped(Import::RemoveFile, (dir, &path), |data| answer(data.binding.files.remove_file(dir, &path)))
    }

    fn rename(&mut self, dir: Descriptor, path: String, new_dir: Descriptor, new_path: String) -> Answer<()> {
        self.taped(Import::Rename, (dir, &path, new_dir, &new_path), |data| {
            answer(data.binding.files.rename(dir, &path, new_dir, &new_path))
        })
    }

    fn link(&mut self, dir: Descriptor, path: String, new_dir: Descriptor, new_path: String) -> Answer<()> {
        self.taped(Import::Link, (dir, &path, new_dir, &new_path), |data| {
            answer(data.binding.files.link(dir, &path, new_dir, &new_path))
        })
    }

    fn symlink(&mut self, target: String, dir: Descriptor, path: String) -> Answer<()> {
        self.taped(Import::Symlink, (&target, dir, &path), |data| {
            answer(data.binding.files.symlink(&target, dir, &path))
        })
    }

    fn read_link(&mut self, dir: Descriptor, path: String) -> Answer<String> {
        self.taped(Import::ReadLink, (dir, &path), |data| answer(data.binding.files.read_link(dir, &path)))
    }
}
