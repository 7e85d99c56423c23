//! Attempts of native code in a worker, and the denial that is named for each.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

use crate::system_calls::call;

/// The filter of system calls has no rule for it.
const SECCOMP: &str = "EPERM";
/// The process is granted no such file.
const LANDLOCK: &str = "EACCES";
/// Files do not cross from one set of rules to another.
const BORDER: &str = "EXDEV";

/// Number for the working folder, in place of a descriptor.
const HERE: usize = libc::AT_FDCWD as usize;
const SIGCHLD: usize = libc::SIGCHLD as usize;

/// Something that is tried, the denial that is named for it, and what happened.
type Attempt = (&'static str, &'static str, io::Result<()>);

/// Makes all attempts, and returns what each is, what it should meet, and what it met.
pub(crate) fn attempts(folder: &Path) -> Vec<(&'static str, &'static str, String)> {
    let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().get() as usize;
    let tried = [processes(parent), sockets(), kernel(parent), files_of_others(folder), files_of_the_machine(parent)];
    let told = |error: io::Error| match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM".to_owned(),
        Some(libc::EACCES) => "EACCES".to_owned(),
        Some(libc::EXDEV) => "EXDEV".to_owned(),
        _ => error.to_string(),
    };
    let tried = tried.into_iter().flatten();
    tried.map(|(what, expected, how)| (what, expected, how.map_or_else(told, |()| "done".to_owned()))).collect()
}

fn text(text: &'static CStr) -> usize {
    text.as_ptr() as usize
}

fn terminated(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zeros")
}

fn read(path: &Path) -> io::Result<()> {
    // Opening it is enough: there are files that never end.
    fs::File::open(path).map(drop)
}

fn list(path: &Path) -> io::Result<()> {
    fs::read_dir(path).map(drop)
}

/// Reads a file by a link in the own store.
fn through(link: &Path, target: &Path) -> io::Result<()> {
    let _ = fs::remove_file(link);
    symlink(target, link).expect("a link in its own store");
    read(link)
}

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests")
}

/// Starting processes, and reaching others.
fn processes(parent: usize) -> Vec<Attempt> {
    vec![
        ("start a program", SECCOMP, call(libc::SYS_execve, [text(c"/bin/true"), 0, 0])),
        ("start a program beside a folder", SECCOMP, call(libc::SYS_execveat, [HERE, text(c"/bin/true"), 0, 0, 0])),
        ("fork", SECCOMP, call(libc::SYS_fork, [])),
        ("fork without a copy", SECCOMP, call(libc::SYS_vfork, [])),
        ("a process by clone", SECCOMP, call(libc::SYS_clone, [SIGCHLD, 0])),
        ("a process in a new user namespace", SECCOMP, call(libc::SYS_clone, [0x1000_0000 | SIGCHLD, 0])),
        ("a new user namespace", SECCOMP, call(libc::SYS_unshare, [0x1000_0000])),
        ("a new mount namespace", SECCOMP, call(libc::SYS_unshare, [0x2_0000])),
        ("a new network namespace", SECCOMP, call(libc::SYS_unshare, [0x4000_0000])),
        ("a new process namespace", SECCOMP, call(libc::SYS_unshare, [0x2000_0000])),
        ("enter another's namespace", SECCOMP, call(libc::SYS_setns, [0, 0])),
        ("trace the process in front", SECCOMP, call(libc::SYS_ptrace, [16, parent])),
        ("have it traced", SECCOMP, call(libc::SYS_ptrace, [0])),
        ("seize it", SECCOMP, call(libc::SYS_ptrace, [0x4206, parent])),
        ("read the memory of the process in front", SECCOMP, call(libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0])),
        ("write it", SECCOMP, call(libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0])),
        ("hold the process in front", SECCOMP, call(libc::SYS_pidfd_open, [parent, 0])),
        ("signal what is held", SECCOMP, call(libc::SYS_pidfd_send_signal, [0, 0, 0, 0])),
        ("take a descriptor of it", SECCOMP, call(libc::SYS_pidfd_getfd, [0, 0, 0])),
        ("compare with it", SECCOMP, call(libc::SYS_kcmp, [parent, parent, 0, 0, 0])),
        ("signal the process in front", SECCOMP, call(libc::SYS_kill, [parent, 0])),
        ("signal everybody", SECCOMP, call(libc::SYS_kill, [usize::MAX, 0])),
        ("signal the group", SECCOMP, call(libc::SYS_kill, [0, 0])),
        ("signal the first process", SECCOMP, call(libc::SYS_kill, [1, 0])),
        ("signal a thread", SECCOMP, call(libc::SYS_tkill, [parent, 0])),
        ("signal a thread of the process in front", SECCOMP, call(libc::SYS_tgkill, [parent, parent, 0])),
        ("queue a signal", SECCOMP, call(libc::SYS_rt_sigqueueinfo, [parent, 0, 0])),
        ("queue a signal for a thread", SECCOMP, call(libc::SYS_rt_tgsigqueueinfo, [parent, parent, 0, 0])),
        ("have the kernel signal the process in front", SECCOMP, call(libc::SYS_fcntl, [0, 8, parent])),
        ("have it signal a thread", SECCOMP, call(libc::SYS_fcntl, [0, 15, 0])),
        ("choose the signal", SECCOMP, call(libc::SYS_fcntl, [0, 10, 9])),
        ("have it signalled by a request", SECCOMP, call(libc::SYS_ioctl, [0, 0x8901, 0])),
        ("and by another", SECCOMP, call(libc::SYS_ioctl, [0, 0x8902, 0])),
        ("type into a terminal", SECCOMP, call(libc::SYS_ioctl, [0, 0x5412, 0])),
        ("paste into a console", SECCOMP, call(libc::SYS_ioctl, [0, 0x541c, 0])),
        ("slow the process in front", SECCOMP, call(libc::SYS_setpriority, [0, parent, 19])),
        ("slow everybody", SECCOMP, call(libc::SYS_setpriority, [2, 0, 19])),
        ("slow the group", SECCOMP, call(libc::SYS_setpriority, [1, 0, 19])),
        ("move the process in front to a core", SECCOMP, call(libc::SYS_sched_setaffinity, [parent, 0, 0])),
        ("schedule it", SECCOMP, call(libc::SYS_sched_setscheduler, [parent, 0, 0])),
        ("schedule it anew", SECCOMP, call(libc::SYS_sched_setattr, [parent, 0, 0])),
        ("its input and output", SECCOMP, call(libc::SYS_ioprio_set, [1, parent, 0])),
        ("bound the process in front", SECCOMP, call(libc::SYS_prlimit64, [parent, 7, 0, 0])),
        ("bound itself", SECCOMP, call(libc::SYS_setrlimit, [7, 0])),
        ("be dumped", SECCOMP, call(libc::SYS_prctl, [4, 0, 0, 0, 0])),
        ("be traced by anybody", SECCOMP, call(libc::SYS_prctl, [0x5961_6d61, 0, 0, 0, 0])),
        ("filter otherwise", SECCOMP, call(libc::SYS_prctl, [22, 0, 0, 0, 0])),
        ("drop a capability", SECCOMP, call(libc::SYS_prctl, [24, 0, 0, 0, 0])),
        ("say where its memory is", SECCOMP, call(libc::SYS_prctl, [35, 0, 0, 0, 0])),
        ("take in orphans", SECCOMP, call(libc::SYS_prctl, [36, 0, 0, 0, 0])),
        ("be killed with others", SECCOMP, call(libc::SYS_prctl, [1, 0, 0, 0, 0])),
        ("keep capabilities", SECCOMP, call(libc::SYS_prctl, [8, 0, 0, 0, 0])),
        ("raise a capability", SECCOMP, call(libc::SYS_prctl, [47, 0, 0, 0, 0])),
        ("count time otherwise", SECCOMP, call(libc::SYS_prctl, [14, 0, 0, 0, 0])),
        ("another filter", SECCOMP, call(libc::SYS_seccomp, [1, 0, 0])),
    ]
}

/// Reaching the network, and other programs.
fn sockets() -> Vec<Attempt> {
    vec![
        ("a socket for TCP", SECCOMP, call(libc::SYS_socket, [2, 1, 0])),
        ("a socket for TCP over IPv6", SECCOMP, call(libc::SYS_socket, [10, 1, 0])),
        ("a socket for UDP", SECCOMP, call(libc::SYS_socket, [2, 2, 0])),
        ("a socket for ICMP", SECCOMP, call(libc::SYS_socket, [2, 2, 1])),
        ("a socket for raw packets", SECCOMP, call(libc::SYS_socket, [2, 3, 1])),
        ("a socket for local connections", SECCOMP, call(libc::SYS_socket, [1, 1, 0])),
        ("a socket for local datagrams", SECCOMP, call(libc::SYS_socket, [1, 2, 0])),
        ("a socket for the kernel", SECCOMP, call(libc::SYS_socket, [16, 3, 0])),
        ("a socket for the audit of the kernel", SECCOMP, call(libc::SYS_socket, [16, 3, 9])),
        ("a socket for network cards", SECCOMP, call(libc::SYS_socket, [17, 3, 768])),
        ("a socket for the hypervisor", SECCOMP, call(libc::SYS_socket, [40, 1, 0])),
        ("a socket for ciphers of the kernel", SECCOMP, call(libc::SYS_socket, [38, 5, 0])),
        ("a socket for Bluetooth", SECCOMP, call(libc::SYS_socket, [31, 3, 0])),
        ("a socket for CAN", SECCOMP, call(libc::SYS_socket, [29, 3, 1])),
        ("a socket for SCTP", SECCOMP, call(libc::SYS_socket, [2, 1, 132])),
        ("a socket for XDP", SECCOMP, call(libc::SYS_socket, [44, 3, 0])),
        ("connect", SECCOMP, call(libc::SYS_connect, [0, 0, 0])),
        ("bind", SECCOMP, call(libc::SYS_bind, [0, 0, 0])),
        ("listen", SECCOMP, call(libc::SYS_listen, [0, 1])),
        ("a pair of datagrams", SECCOMP, call(libc::SYS_socketpair, [1, 2, 0, 0])),
        ("a pair of packets", SECCOMP, call(libc::SYS_socketpair, [1, 5, 0, 0])),
        ("a pair of the internet", SECCOMP, call(libc::SYS_socketpair, [2, 1, 0, 0])),
    ]
}

/// Parts of the kernel that a host of sandboxes needs not.
fn kernel(parent: usize) -> Vec<Attempt> {
    vec![
        ("the keyring", SECCOMP, call(libc::SYS_keyctl, [0, 0, 0, 0, 0])),
        ("add a key", SECCOMP, call(libc::SYS_add_key, [0, 0, 0, 0, 0])),
        ("ask for a key", SECCOMP, call(libc::SYS_request_key, [0, 0, 0, 0])),
        ("a program of the kernel", SECCOMP, call(libc::SYS_bpf, [0, 0, 0])),
        ("events of processors", SECCOMP, call(libc::SYS_perf_event_open, [0, 0, 0, 0, 0])),
        ("page faults", SECCOMP, call(libc::SYS_userfaultfd, [0])),
        ("rings", SECCOMP, call(libc::SYS_io_uring_setup, [1, 0])),
        ("enter a ring", SECCOMP, call(libc::SYS_io_uring_enter, [0, 0, 0, 0, 0, 0])),
        ("register with a ring", SECCOMP, call(libc::SYS_io_uring_register, [0, 0, 0, 0])),
        ("load a module", SECCOMP, call(libc::SYS_init_module, [0, 0, 0])),
        ("load a module from a file", SECCOMP, call(libc::SYS_finit_module, [0, 0, 0])),
        ("remove a module", SECCOMP, call(libc::SYS_delete_module, [0, 0])),
        ("load a kernel", SECCOMP, call(libc::SYS_kexec_load, [0, 0, 0, 0])),
        ("load a kernel from a file", SECCOMP, call(libc::SYS_kexec_file_load, [0, 0, 0, 0, 0])),
        ("restart the machine", SECCOMP, call(libc::SYS_reboot, [0, 0, 0, 0])),
        ("set the clock", SECCOMP, call(libc::SYS_settimeofday, [0, 0])),
        ("set a clock", SECCOMP, call(libc::SYS_clock_settime, [0, 0])),
        ("adjust a clock", SECCOMP, call(libc::SYS_clock_adjtime, [0, 0])),
        ("adjust the clock", SECCOMP, call(libc::SYS_adjtimex, [0])),
        ("name the machine", SECCOMP, call(libc::SYS_sethostname, [0, 0])),
        ("name the domain", SECCOMP, call(libc::SYS_setdomainname, [0, 0])),
        ("be root", SECCOMP, call(libc::SYS_setuid, [0])),
        ("be of the group of root", SECCOMP, call(libc::SYS_setgid, [0])),
        ("be of no group", SECCOMP, call(libc::SYS_setgroups, [0, 0])),
        ("be somebody", SECCOMP, call(libc::SYS_setresuid, [0, 0, 0])),
        ("be of a group", SECCOMP, call(libc::SYS_setresgid, [0, 0, 0])),
        ("open as somebody", SECCOMP, call(libc::SYS_setfsuid, [0])),
        ("take capabilities", SECCOMP, call(libc::SYS_capset, [0, 0])),
        ("lead a session", SECCOMP, call(libc::SYS_setsid, [])),
        ("lead a group", SECCOMP, call(libc::SYS_setpgid, [0, 0])),
        ("be another kernel", SECCOMP, call(libc::SYS_personality, [0])),
        ("mount", SECCOMP, call(libc::SYS_mount, [0, 0, 0, 0, 0])),
        ("unmount", SECCOMP, call(libc::SYS_umount2, [0, 0])),
        ("pivot", SECCOMP, call(libc::SYS_pivot_root, [0, 0])),
        ("change root", SECCOMP, call(libc::SYS_chroot, [text(c"/")])),
        ("open a tree", SECCOMP, call(libc::SYS_open_tree, [HERE, text(c"/"), 0])),
        ("move a mount", SECCOMP, call(libc::SYS_move_mount, [0, 0, 0, 0, 0])),
        ("open a file system", SECCOMP, call(libc::SYS_fsopen, [text(c"tmpfs"), 0])),
        ("mount a file system", SECCOMP, call(libc::SYS_fsmount, [0, 0, 0])),
        ("pick a file system", SECCOMP, call(libc::SYS_fspick, [HERE, text(c"/"), 0])),
        ("change a mount", SECCOMP, call(libc::SYS_mount_setattr, [0, 0, 0, 0, 0])),
        ("the handle of a file", SECCOMP, call(libc::SYS_name_to_handle_at, [HERE, text(c"/"), 0, 0, 0])),
        ("open by a handle", SECCOMP, call(libc::SYS_open_by_handle_at, [0, 0, 0])),
        ("swap", SECCOMP, call(libc::SYS_swapon, [0, 0])),
        ("swap no more", SECCOMP, call(libc::SYS_swapoff, [0])),
        ("account", SECCOMP, call(libc::SYS_acct, [0])),
        ("quotas", SECCOMP, call(libc::SYS_quotactl, [0, 0, 0, 0])),
        ("the log of the kernel", SECCOMP, call(libc::SYS_syslog, [3, 0, 0])),
        ("ports", SECCOMP, call(libc::SYS_iopl, [3])),
        ("a port", SECCOMP, call(libc::SYS_ioperm, [0, 1, 1])),
        ("segments", SECCOMP, call(libc::SYS_modify_ldt, [0, 0, 0])),
        ("hang up", SECCOMP, call(libc::SYS_vhangup, [])),
        ("watch files", SECCOMP, call(libc::SYS_inotify_init1, [0])),
        ("watch everything", SECCOMP, call(libc::SYS_fanotify_init, [0, 0])),
        ("shared memory", SECCOMP, call(libc::SYS_shmget, [0, 4096, 0])),
        ("a shared queue", SECCOMP, call(libc::SYS_msgget, [0, 0])),
        ("a shared semaphore", SECCOMP, call(libc::SYS_semget, [0, 1, 0])),
        ("a named queue", SECCOMP, call(libc::SYS_mq_open, [0, 0, 0, 0])),
        ("secret memory", SECCOMP, call(libc::SYS_memfd_secret, [0])),
        ("move another's pages", SECCOMP, call(libc::SYS_move_pages, [parent, 0, 0, 0, 0, 0])),
        ("migrate another's pages", SECCOMP, call(libc::SYS_migrate_pages, [parent, 0, 0, 0])),
        ("advise another's memory", SECCOMP, call(libc::SYS_process_madvise, [0, 0, 0, 0, 0])),
        ("free another's memory", SECCOMP, call(libc::SYS_process_mrelease, [0, 0])),
        ("bounds of its own", SECCOMP, call(libc::SYS_landlock_restrict_self, [0, 0])),
        ("a device", SECCOMP, call(libc::SYS_mknodat, [HERE, text(c"device"), 0o20666, 0x103])),
        ("a named pipe", SECCOMP, call(libc::SYS_mknodat, [HERE, text(c"pipe"), 0o10666, 0])),
        ("give a file away", SECCOMP, call(libc::SYS_fchownat, [HERE, text(c"file"), 0, 0, 0])),
        ("give an open file away", SECCOMP, call(libc::SYS_fchown, [0, 0, 0])),
        ("the mode of a file", SECCOMP, call(libc::SYS_fchmodat, [HERE, text(c"file"), 0o777])),
        ("the mode of a file by its older form", SECCOMP, call(libc::SYS_chmod, [text(c"file"), 0o777])),
        ("the mode of a file by its newer form", SECCOMP, call(libc::SYS_fchmodat2, [HERE, text(c"file"), 0o777, 0])),
        ("mark a file", SECCOMP, call(libc::SYS_setxattr, [0, 0, 0, 0, 0])),
        ("unmark a file", SECCOMP, call(libc::SYS_removexattr, [0, 0])),
        ("another working folder", SECCOMP, call(libc::SYS_chdir, [text(c"/")])),
        ("another working folder by a descriptor", SECCOMP, call(libc::SYS_fchdir, [0])),
        ("a timer that signals", SECCOMP, call(libc::SYS_timer_create, [0, 0, 0])),
        ("an alarm", SECCOMP, call(libc::SYS_setitimer, [0, 0, 0])),
        ("a system call of another form", SECCOMP, call(libc::SYS_getpid | 0x4000_0000, [])),
    ]
}

/// Files of the server and of its other tenants.
fn files_of_others(folder: &Path) -> Vec<Attempt> {
    let path = |name: &str| folder.join(name);
    let own = |name: &str| path("store/.tenants/red").join(name);
    vec![
        ("read another tenant's store", LANDLOCK, read(&path("store/.tenants/blue/file"))),
        ("list another tenant's store", LANDLOCK, list(&path("store/.tenants/blue"))),
        ("list the tenants", LANDLOCK, list(&path("store/.tenants"))),
        ("list the store", LANDLOCK, list(&path("store"))),
        ("write another tenant's store", LANDLOCK, fs::write(path("store/.tenants/blue/new"), "")),
        (
            "empty another tenant's file",
            LANDLOCK,
            fs::OpenOptions::new().write(true).truncate(true).open(path("store/.tenants/blue/file")).map(drop),
        ),
        (
            "append to another tenant's file",
            LANDLOCK,
            fs::OpenOptions::new().append(true).open(path("store/.tenants/blue/file")).map(drop),
        ),
        (
            "shorten another tenant's file by its name",
            LANDLOCK,
            call(libc::SYS_truncate, [terminated(&path("store/.tenants/blue/file")).as_ptr() as usize, 0]),
        ),
        ("remove another tenant's file", LANDLOCK, fs::remove_file(path("store/.tenants/blue/file"))),
        ("a folder in another tenant's store", LANDLOCK, fs::create_dir(path("store/.tenants/blue/folder"))),
        ("remove another tenant's store", LANDLOCK, fs::remove_dir(path("store/.tenants/blue"))),
        (
            "rename another tenant's store",
            LANDLOCK,
            fs::rename(path("store/.tenants/blue"), path("store/.tenants/green")),
        ),
        ("take another tenant's file", LANDLOCK, fs::rename(path("store/.tenants/blue/file"), own("taken"))),
        ("give another tenant a file", LANDLOCK, fs::rename(own("file"), path("store/.tenants/blue/given"))),
        ("link another tenant's file", BORDER, fs::hard_link(path("store/.tenants/blue/file"), own("linked"))),
        ("link into another tenant's store", LANDLOCK, symlink("x", path("store/.tenants/blue/link"))),
        ("read another tenant's file by a link", LANDLOCK, through(&own("by-link"), &path("store/.tenants/blue/file"))),
        ("read another tenant's file by dots", LANDLOCK, read(&own("../blue/file"))),
        (
            "by the root of its own process",
            LANDLOCK,
            read(&PathBuf::from(format!("/proc/self/root{}", path("store/.tenants/blue/file").display()))),
        ),
        ("read the tokens", LANDLOCK, read(&path("store/.tokens.json"))),
        ("write the tokens", LANDLOCK, fs::write(path("store/.tokens.json"), "{}")),
        ("read a credential", LANDLOCK, read(&path("secret"))),
        ("write the configuration", LANDLOCK, fs::write(path("cellar.toml"), "")),
        ("replace the configuration", LANDLOCK, fs::rename(own("file"), path("cellar.toml"))),
        ("write a guest", LANDLOCK, fs::write(guests().join("new"), "")),
        (
            "change a guest",
            LANDLOCK,
            fs::OpenOptions::new().write(true).open(guests().join("python/guest.wasm")).map(drop),
        ),
    ]
}

/// Files of the machine, and of other processes.
fn files_of_the_machine(parent: usize) -> Vec<Attempt> {
    let front = |name: &str| PathBuf::from(format!("/proc/{parent}/{name}"));
    vec![
        ("read passwords", LANDLOCK, read(Path::new("/etc/shadow"))),
        ("read certificates of the host, beside which keys lie", LANDLOCK, read(Path::new("/etc/ssl/openssl.cnf"))),
        ("list keys of the host", LANDLOCK, list(Path::new("/etc/ssl/private"))),
        ("read the names of machines", LANDLOCK, read(Path::new("/etc/hosts"))),
        ("read users", LANDLOCK, read(Path::new("/etc/passwd"))),
        ("read the name of the host", LANDLOCK, read(Path::new("/etc/hostname"))),
        ("read the log of the kernel", LANDLOCK, read(Path::new("/dev/kmsg"))),
        ("read a terminal", LANDLOCK, read(Path::new("/dev/tty"))),
        ("read symbols of the kernel", LANDLOCK, read(Path::new("/proc/kallsyms"))),
        ("read the variables of the first process", LANDLOCK, read(Path::new("/proc/1/environ"))),
        ("read the command of the first process", LANDLOCK, read(Path::new("/proc/1/cmdline"))),
        ("read settings of the kernel", LANDLOCK, read(Path::new("/proc/sys/kernel/core_pattern"))),
        ("read `environ` of the process in front", LANDLOCK, read(&front("environ"))),
        ("read `mem` of the process in front", LANDLOCK, read(&front("mem"))),
        ("read `maps` of the process in front", LANDLOCK, read(&front("maps"))),
        ("read `cmdline` of the process in front", LANDLOCK, read(&front("cmdline"))),
        ("read `status` of the process in front", LANDLOCK, read(&front("status"))),
        ("read `stack` of the process in front", LANDLOCK, read(&front("stack"))),
        ("read `auxv` of the process in front", LANDLOCK, read(&front("auxv"))),
        ("read `cgroup` of the process in front", LANDLOCK, read(&front("cgroup"))),
        ("list `fd` of the process in front", LANDLOCK, list(&front("fd"))),
        ("list `task` of the process in front", LANDLOCK, list(&front("task"))),
        ("list `ns` of the process in front", LANDLOCK, list(&front("ns"))),
        ("list `map_files` of the process in front", LANDLOCK, list(&front("map_files"))),
        ("the root of the process in front", LANDLOCK, list(&front("root/"))),
        ("the folder of the process in front", LANDLOCK, list(&front("cwd/"))),
        ("the program of the process in front", LANDLOCK, read(&front("exe"))),
        ("list the root", LANDLOCK, list(Path::new("/"))),
        ("list homes", LANDLOCK, list(Path::new("/home"))),
        ("list the home of root", LANDLOCK, list(Path::new("/root"))),
        ("list other processes", LANDLOCK, list(Path::new("/proc"))),
        ("list devices", LANDLOCK, list(Path::new("/dev"))),
        ("list what runs", LANDLOCK, list(Path::new("/run"))),
        ("list temporary files of others", LANDLOCK, list(Path::new("/tmp"))),
        ("write a temporary file beside its own", LANDLOCK, fs::write("/tmp/cellar-hole", "")),
        ("write a program", LANDLOCK, fs::write("/usr/local/bin/cellar-hole", "")),
        ("write a setting of the kernel", LANDLOCK, fs::write("/proc/sys/kernel/core_pattern", "")),
        ("write its own score for lack of memory", LANDLOCK, fs::write("/proc/self/oom_score_adj", "-1000")),
    ]
}
