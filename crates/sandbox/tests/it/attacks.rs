//! System calls that a confined process must not get away with. Each attack is a function that runs inside
//! the sandbox, by the same door as real runners, and prints what the kernel said.

use std::ffi::CStr;
use std::io;

use countersign_sandbox::runner::RunnerInput;
use countersign_sandbox::{Launch, Network};

use crate::setting::{ALL, Setting, in_settings};
use crate::support::{Server, attack};

/// The runner of these tests: a name, or a small program for `runner.rs`.
pub(crate) fn run(input: RunnerInput<'_>) -> i32 {
    let name = String::from_utf8_lossy(&input.payload).into_owned();
    let known = ATTACKS.iter().map(|(known, attack, _)| (known, attack));
    let beside = BESIDE_OTHERS.iter().map(|(known, attack)| (known, attack));
    match known.chain(beside).find(|(known, _)| **known == name) {
        Some((_, attack)) => say(attack()),
        None => crate::runner::run(&name, &input),
    }
}

fn say(result: i64) -> i32 {
    let text = if result == -1 {
        format!("{}", io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        "open".to_owned()
    };
    // SAFETY: writes a valid buffer to a stream that is open.
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    0
}

type Attack = fn() -> i64;

macro_rules! call {
    ($($argument:expr),+) => {
        // SAFETY: every attack is a call that the kernel checks; none is given memory to write to.
        || unsafe { libc::syscall($($argument),+) }
    };
}

fn path(text: &'static CStr) -> *const libc::c_char {
    text.as_ptr()
}

/// Name, what is tried, and the errors that count as refused.
const ATTACKS: &[(&str, Attack, &[i32])] = &[
    (
        "leave-a-named-queue",
        call!(libc::SYS_mq_open, path(c"left"), libc::O_RDWR | libc::O_CREAT, 0o600, 0),
        &[libc::ENOSYS],
    ),
    // `open_tree_attr`, which the C library does not name yet. Where the kernel does not know it either, the filter is first.
    (
        "open-a-mount-with-other-rights",
        call!(467, libc::AT_FDCWD, path(c"/"), 0, 0, 0),
        &[libc::EPERM],
    ),
    (
        "remove-a-named-queue",
        call!(libc::SYS_mq_unlink, path(c"left")),
        &[libc::ENOSYS],
    ),
    (
        "priority-of-the-keeper",
        || i64::from(set_priority_of(parent())),
        &[libc::EPERM],
    ),
    (
        "processors-of-the-keeper",
        || set_processors_of(parent()),
        &[libc::EPERM],
    ),
    ("limits-of-the-keeper", || set_limit_of(parent()), &[libc::EPERM]),
    (
        "inet",
        call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
        &[libc::EACCES],
    ),
    (
        "inet6-udp",
        call!(libc::SYS_socket, libc::AF_INET6, libc::SOCK_DGRAM, 0),
        &[libc::EACCES],
    ),
    (
        "mptcp",
        call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 262),
        &[libc::EACCES],
    ),
    (
        "raw",
        call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_RAW, 1),
        &[libc::EACCES],
    ),
    (
        "packet",
        call!(libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0),
        &[libc::EACCES],
    ),
    (
        "unix",
        call!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0),
        &[libc::EACCES],
    ),
    // From one of the two a datagram can be sent to any local socket.
    (
        "unix-datagrams",
        call!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_DGRAM, 0, 0),
        &[libc::EACCES],
    ),
    (
        "unix-datagrams-by-another-name",
        call!(
            libc::SYS_socketpair,
            libc::AF_UNIX,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            0,
            0
        ),
        &[libc::EACCES],
    ),
    (
        "netlink",
        call!(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0),
        &[libc::EACCES],
    ),
    (
        "vsock",
        call!(libc::SYS_socket, libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        &[libc::EACCES],
    ),
    (
        "unshare-user",
        call!(libc::SYS_unshare, libc::CLONE_NEWUSER),
        &[libc::EPERM],
    ),
    (
        "unshare-net",
        call!(libc::SYS_unshare, libc::CLONE_NEWNET),
        &[libc::EPERM],
    ),
    (
        "clone-user",
        call!(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0),
        &[libc::EPERM],
    ),
    ("clone3", call!(libc::SYS_clone3, 0, 0), &[libc::ENOSYS]),
    ("setns", call!(libc::SYS_setns, 0, 0), &[libc::EPERM]),
    (
        "ptrace-me",
        call!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0),
        &[libc::EPERM],
    ),
    (
        "ptrace-keeper",
        call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, parent(), 0, 0),
        &[libc::EPERM],
    ),
    ("read-keeper", || open_keeper("mem"), &[libc::EACCES, libc::EPERM]),
    (
        "keeper-environment",
        || open_keeper("environ"),
        &[libc::EACCES, libc::EPERM],
    ),
    ("signal-keeper", signal_keeper, &[libc::EPERM]),
    (
        "mount",
        call!(libc::SYS_mount, path(c"none"), path(c"/tmp"), path(c"tmpfs"), 0, 0),
        &[libc::EPERM],
    ),
    ("chroot", call!(libc::SYS_chroot, path(c"/")), &[libc::EPERM]),
    (
        "pivot-root",
        call!(libc::SYS_pivot_root, path(c"/"), path(c"/")),
        &[libc::EPERM],
    ),
    ("handle", call!(libc::SYS_open_by_handle_at, 0, 0, 0), &[libc::EPERM]),
    ("keyctl", call!(libc::SYS_keyctl, 0, -3, 0, 0, 0), &[libc::EPERM]),
    ("bpf", call!(libc::SYS_bpf, 0, 0, 0), &[libc::EPERM]),
    ("userfaultfd", call!(libc::SYS_userfaultfd, 1), &[libc::EPERM]),
    (
        "perf",
        call!(libc::SYS_perf_event_open, 0, 0, -1, -1, 0),
        &[libc::EPERM],
    ),
    ("io-uring", call!(libc::SYS_io_uring_setup, 1, 0), &[libc::ENOSYS]),
    ("reboot", call!(libc::SYS_reboot, 0, 0, 0, 0), &[libc::EPERM]),
    ("module", call!(libc::SYS_init_module, 0, 0, 0), &[libc::EPERM]),
    ("clock", call!(libc::SYS_clock_settime, 0, 0), &[libc::EPERM]),
    ("lease", call!(libc::SYS_fcntl, 0, 1024, 0), &[libc::EPERM]),
    ("tiocsti", call!(libc::SYS_ioctl, 0, 0x5412, path(c"x")), &[libc::EPERM]),
    (
        "setuid",
        call!(libc::SYS_setresuid, 0, 0, 0),
        &[libc::EPERM, libc::EINVAL],
    ),
    (
        "process-vm",
        call!(libc::SYS_process_vm_readv, parent(), 0, 0, 0, 0, 0),
        &[libc::EPERM],
    ),
];

/// What the user's other programs share, by number or by name, where no namespace keeps it apart. The filter answers
/// before the kernel looks whether there is such a thing.
const BESIDE_OTHERS: &[(&str, Attack)] = &[
    ("look-at-memory", call!(libc::SYS_shmctl, 0, libc::IPC_STAT, 0)),
    ("remove-memory", call!(libc::SYS_shmctl, -1, libc::IPC_RMID, 0)),
    ("attach-memory", call!(libc::SYS_shmat, -1, 0, 0)),
    ("set-semaphore", call!(libc::SYS_semctl, -1, 0, libc::SETVAL, 1)),
    ("take-semaphore", call!(libc::SYS_semop, -1, 0, 1)),
    ("wait-for-semaphore", call!(libc::SYS_semtimedop, -1, 0, 1, 0)),
    ("read-a-queue", call!(libc::SYS_msgrcv, -1, 0, 1, 0, libc::IPC_NOWAIT)),
    ("write-to-a-queue", call!(libc::SYS_msgsnd, -1, 0, 1, libc::IPC_NOWAIT)),
    ("remove-a-queue", call!(libc::SYS_msgctl, -1, libc::IPC_RMID, 0)),
];

/// Only with a list of programs: a program in memory is no file that Landlock could refuse.
const MEMORY_FILE: &str = "memfd";

fn parent() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getppid() }
}

fn set_priority_of(pid: i32) -> i32 {
    // SAFETY: takes integers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as libc::id_t, 19) }
}

fn set_processors_of(pid: i32) -> i64 {
    // SAFETY: an all-zero set is a valid one, and it is only read.
    unsafe {
        let mut first: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut first);
        i64::from(libc::sched_setaffinity(
            pid,
            size_of::<libc::cpu_set_t>(),
            &raw const first,
        ))
    }
}

fn set_limit_of(pid: i32) -> i64 {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads one limit; nothing is written.
    i64::from(unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const none, std::ptr::null_mut()) })
}

fn open_keeper(file: &str) -> i64 {
    let path = format!("/proc/{}/{file}\0", parent());
    // SAFETY: the path is NUL-terminated.
    i64::from(unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY) })
}

fn signal_keeper() -> i64 {
    // SAFETY: takes integers only.
    let result = i64::from(unsafe { libc::kill(parent(), libc::SIGTERM) });
    // The first process of a pid namespace can be signalled by its own user to no effect: the kernel drops it.
    if result == 0 && parent() == 1 {
        // SAFETY: the thread's own error number.
        unsafe { *libc::__errno_location() = libc::EPERM };
        return -1;
    }
    result
}

pub(crate) fn memory_file() -> i32 {
    // SAFETY: the name is NUL-terminated.
    say(unsafe { libc::syscall(libc::SYS_memfd_create, path(c"x"), 0) })
}

#[test]
fn dangerous_system_calls_are_refused() {
    in_settings("attacks::dangerous_system_calls_are_refused", ALL, |setting| {
        let server = Server::start(setting);
        let keeper = server.keeper(&server.profile());
        for (name, _, expected) in ATTACKS {
            let done = attack(&keeper, &server.workspace, name);
            let said = done.succeeded();
            assert!(
                expected.iter().any(|errno| said == errno.to_string()),
                "{name} in {setting:?}: {said}"
            );
        }
    });
}

#[test]
fn what_other_programs_of_the_user_share_is_out_of_reach_without_namespaces() {
    in_settings(
        "attacks::what_other_programs_of_the_user_share_is_out_of_reach_without_namespaces",
        &[Setting::RootPlain, Setting::UserPlain],
        |setting| {
            let server = Server::start(setting);
            let keeper = server.keeper(&server.profile());
            for (name, _) in BESIDE_OTHERS {
                let done = attack(&keeper, &server.workspace, name);
                assert_eq!(done.succeeded(), libc::EPERM.to_string(), "{name} in {setting:?}");
            }
        },
    );
}

#[test]
fn memory_files_are_refused_only_with_a_list_of_programs() {
    in_settings(
        "attacks::memory_files_are_refused_only_with_a_list_of_programs",
        ALL,
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            let said = attack(&server.keeper(&profile), &server.workspace, MEMORY_FILE).stdout;
            assert_eq!(said, "open");
            profile.exec_list = true;
            let sh = crate::support::find("sh");
            let order = Launch {
                exec: crate::support::only(&[&sh]),
                body: countersign_sandbox::Body::Run {
                    payload: MEMORY_FILE.into(),
                },
                ..crate::support::launch(&sh, &server.workspace, &["sh"])
            };
            let done = crate::support::run(&server.keeper(&profile), &order, &[sh.executable()]);
            assert_eq!(done.succeeded(), libc::EPERM.to_string());
        },
    );
}

#[test]
fn an_allowed_network_still_has_no_local_or_raw_sockets() {
    in_settings(
        "attacks::an_allowed_network_still_has_no_local_or_raw_sockets",
        &[Setting::Root, Setting::User],
        |setting| {
            let server = Server::start(setting);
            let mut profile = server.profile();
            profile.network = Network::Allow;
            let keeper = server.keeper(&profile);
            let table = [
                ("inet", true),
                ("inet6-udp", true),
                ("netlink", true),
                ("unix", false),
                ("unix-datagrams", false),
                ("raw", false),
                ("mptcp", false),
                ("packet", false),
                ("vsock", false),
            ];
            for (name, open) in table {
                assert_eq!(
                    attack(&keeper, &server.workspace, name).succeeded() == "open",
                    open,
                    "{name}"
                );
            }
        },
    );
}

#[test]
fn other_processes_are_out_of_reach() {
    in_settings("attacks::other_processes_are_out_of_reach", ALL, |setting| {
        let server = Server::start(setting);
        let pid = std::process::id();
        server.sh(&format!("kill -0 {pid}")).refused("x");
        server.sh(&format!("cat /proc/{pid}/environ")).refused("PATH");
        if setting.namespaces() {
            let seen = server.sh("ls /proc | grep -c '^[0-9]'").stdout;
            assert!(seen.trim().parse::<u32>().unwrap() <= 4, "{seen}");
        }
    });
}
