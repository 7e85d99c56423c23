//! seccomp: which system calls this process may make.
//!
//! The list was measured (`strace -cf` over the tests of the server) and then filled up with what belongs together, so
//! that another C library or another version of a dependency finds its own. Everything else fails with `EPERM`: starting a
//! program, tracing or reading another process, mounting, namespaces, keys, `io_uring`, `bpf`, modules, clocks, identities.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use crate::{IsolationError, Needs};

/// Always allowed, whatever their arguments.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_msync,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_mseal,
    // Files.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_umask,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_times,
    libc::SYS_getrusage,
    // Threads, and this process.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Sockets that there are, and pairs of them.
    libc::SYS_socketpair,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Older forms of these, which other processors do not have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_arch_prctl,
    libc::SYS_getpgrp,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Options of `prctl` that a thread may use on itself: its name, names of its memory, and not to gain privileges.
const ALLOWED_PRCTL: [i32; 5] =
    [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, libc::PR_SET_NO_NEW_PRIVS, libc::PR_GET_NO_NEW_PRIVS];
/// Requests of terminals that type what others then read.
const DENIED_IOCTL: [libc::c_ulong; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

pub(crate) fn is_available() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").is_ok_and(|actions| actions.contains("errno"))
}

/// Filters the system calls of this process from now on.
pub(crate) fn restrict(needs: &Needs) -> Result<(), IsolationError> {
    let refused =
        |error: &dyn std::fmt::Display| IsolationError::Refused { layer: "seccomp", reason: error.to_string() };
    let rules = rules(needs).map_err(|error| refused(&error))?;
    let denied = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    // What a new thread is to be is told by `clone3` in memory, which no filter sees: whoever hears that there is none
    // uses `clone`. This filter comes first, as the other one does not allow filters.
    let older = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, otherwise, matched) in
        [(older, SeccompAction::Allow, denied(libc::ENOSYS)), (rules, denied(libc::EPERM), SeccompAction::Allow)]
    {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| refused(&error))?;
        let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(|error| refused(&error))?;
        let program = BpfProgram::try_from(filter).map_err(|error| refused(&error))?;
        apply_filter_all_threads(&program).map_err(|error| refused(&error))?;
    }
    Ok(())
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn rules(needs: &Needs) -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules: Rules = ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, Vec::new())).collect();
    let word = |place, op, value: u64| SeccompCondition::new(place, SeccompCmpArgLen::Dword, op, value);
    let is = |place, value: i32| word(place, Eq, u64::from(value.unsigned_abs()));
    let rule = |condition: SeccompCondition| SeccompRule::new(vec![condition]);
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    rules.insert(libc::SYS_clone, vec![rule(word(0, MaskedEq(thread), thread)?)?]);
    let own = |options: &[i32]| options.iter().map(|option| rule(is(0, *option)?)).collect::<Result<Vec<_>, _>>();
    rules.insert(libc::SYS_prctl, own(&ALLOWED_PRCTL)?);
    // Limits of this process alone.
    rules.insert(libc::SYS_prlimit64, own(&[0])?);
    let harmless: Result<Vec<_>, _> = DENIED_IOCTL.iter().map(|request| word(1, Ne, *request)).collect();
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(harmless?)?]);
    let mut families = Vec::new();
    if needs.connects {
        // With the kernel's own, by which the C library sees which addresses this machine has.
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
        rules.extend([libc::SYS_connect, libc::SYS_bind].map(|call| (call, Vec::new())));
    }
    if needs.local_sockets {
        families.push(libc::AF_UNIX);
        rules.extend([libc::SYS_bind, libc::SYS_listen].map(|call| (call, Vec::new())));
    }
    if !families.is_empty() {
        rules.insert(libc::SYS_socket, own(&families)?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_programs_or_reaches_other_processes_is_never_allowed() {
        let all = rules(&Needs { connects: true, local_sockets: true, ..Needs::default() }).expect("rules");
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_io_uring_setup,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_chroot,
            libc::SYS_pivot_root,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_userfaultfd,
            libc::SYS_open_by_handle_at,
            libc::SYS_init_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_setuid,
            libc::SYS_personality,
            libc::SYS_kill,
        ] {
            assert!(!all.contains_key(&call), "system call {call}");
        }
        let none = rules(&Needs::default()).expect("rules");
        for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen] {
            assert!(!none.contains_key(&call) && all.contains_key(&call), "system call {call}");
        }
        assert!(all[&libc::SYS_clone].len() == 1, "threads, and no processes");
    }
}
