//! System calls as native code makes them.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

/// Makes a system call with arguments that are numbers, or addresses of texts that live on.
#[expect(unsafe_code, reason = "native code of an attacker makes any system call; see the SAFETY note")]
pub(crate) fn call<const N: usize>(number: i64, arguments: [usize; N]) -> io::Result<()> {
    let mut all = [0_usize; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: every caller expects a denial. If one is missing, what is carried out writes into no memory of this process: the
    // arguments are zeros, small numbers, and addresses of constants that are only read.
    let done = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A copy of a descriptor of this process, if it is a socket.
#[expect(unsafe_code, reason = "native code of an attacker tries all numbers of descriptors; see the SAFETY note")]
pub(crate) fn socket(number: i32) -> Option<OwnedFd> {
    // SAFETY: it is borrowed for as long as a copy takes; one that is not open is refused by the kernel.
    let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()?;
    rustix::net::sockopt::socket_type(&copy).is_ok().then_some(copy)
}
