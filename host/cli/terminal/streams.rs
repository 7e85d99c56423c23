//! The standard streams as tasks read and write them.
//!
//! A task waits for a pipe or a socket itself, which costs no thread and no way from one to another. How they are open for
//! other processes stays as it is: a pipe is opened once more for this one. What cannot be waited for, a file or a terminal,
//! is copied from or to a pipe by a thread.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::FileTypeExt, net::UnixStream as Socket},
    },
    thread::{self, JoinHandle},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::{UnixStream, unix::pipe},
};

use super::{Look, escaped_json, write_stdout};

/// Bytes that are read, or copied, at once.
const PIECE_BYTES: usize = 64 << 10;

/// Standard input.
pub(crate) struct Input {
    from: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    copier: Option<JoinHandle<io::Result<()>>>,
}

/// Standard output, for JSON.
pub(crate) struct Output {
    to: Box<dyn AsyncWrite + Send + Unpin>,
    copier: Option<JoinHandle<io::Result<()>>>,
    is_terminal: bool,
}

impl Input {
    /// Opens it. Needs a runtime.
    ///
    /// # Errors
    /// It cannot be waited for, nor copied.
    pub(crate) fn open() -> io::Result<Input> {
        let stdin = io::stdin();
        let waited: Option<Box<dyn AsyncRead + Send + Unpin>> = match kind(stdin.as_fd())? {
            Kind::Pipe => pipe::OpenOptions::new().open_receiver("/dev/stdin").ok().map(|pipe| Box::new(pipe) as _),
            Kind::Socket(socket) => Some(Box::new(UnixStream::from_std(socket)?)),
            Kind::Other => None,
        };
        let (from, copier) = match waited {
            Some(waited) => (waited, None),
            None => {
                let (reader, mut writer) = io::pipe()?;
                let copy = move || io::copy(&mut io::stdin().lock(), &mut writer).map(drop);
                (Box::new(pipe::Receiver::from_owned_fd(reader.into())?) as _, Some(thread::spawn(copy)))
            }
        };
        Ok(Input { from: BufReader::with_capacity(PIECE_BYTES, from), copier })
    }

    /// Returns the reader of the input.
    pub(crate) fn reader(&mut self) -> &mut (impl tokio::io::AsyncBufRead + Unpin) {
        &mut self.from
    }

    /// Checks, after the end of the input, that it was read without an error.
    ///
    /// # Errors
    /// It could not be read on.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        joined(self.copier.take())
    }
}

impl Output {
    /// Opens it. Needs a runtime.
    ///
    /// # Errors
    /// It cannot be waited for, nor copied.
    pub(crate) fn open() -> io::Result<Output> {
        let stdout = io::stdout();
        let waited: Option<Box<dyn AsyncWrite + Send + Unpin>> = match kind(stdout.as_fd())? {
            Kind::Pipe => pipe::OpenOptions::new().open_sender("/dev/stdout").ok().map(|pipe| Box::new(pipe) as _),
            Kind::Socket(socket) => Some(Box::new(UnixStream::from_std(socket)?)),
            Kind::Other => None,
        };
        let (to, copier) = match waited {
            Some(waited) => (waited, None),
            None => {
                let (reader, writer) = io::pipe()?;
                let copy = move || copy_to_stdout(reader);
                (Box::new(pipe::Sender::from_owned_fd(writer.into())?) as _, Some(thread::spawn(copy)))
            }
        };
        Ok(Output { to, copier, is_terminal: Look::of_stdout().is_terminal })
    }

    /// Writes lines of JSON. A terminal gets them with every harmful character escaped.
    ///
    /// # Errors
    /// They cannot be written.
    ///
    /// # Cancel safety
    /// Not cancel safe: a part may have been written.
    pub(crate) async fn write(&mut self, json: &str) -> io::Result<()> {
        match self.is_terminal {
            true => self.to.write_all(escaped_json(json).as_bytes()).await,
            false => self.to.write_all(json.as_bytes()).await,
        }
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// It could not be.
    pub(crate) async fn end(mut self) -> io::Result<()> {
        self.to.flush().await?;
        drop(self.to);
        let copied = tokio::task::spawn_blocking(move || joined(self.copier)).await;
        copied.unwrap_or_else(|error| Err(error.into()))
    }
}

/// Kind of a stream.
enum Kind {
    /// It can be opened once more by its name, unless another user has made it or its other end is closed.
    Pipe,
    Socket(Socket),
    Other,
}

fn kind(stream: BorrowedFd<'_>) -> io::Result<Kind> {
    let file = File::from(stream.try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        return Ok(Kind::Pipe);
    }
    if !kind.is_socket() {
        return Ok(Kind::Other);
    }
    let socket = Socket::from(OwnedFd::from(file));
    socket.set_nonblocking(true)?;
    Ok(Kind::Socket(socket))
}

fn copy_to_stdout(mut from: impl Read) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            read => write_stdout(&piece[..read])?,
        }
    }
}

fn joined(copier: Option<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    copier.map_or(Ok(()), |copier| copier.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
}
