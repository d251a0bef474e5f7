//! Which system calls are refused, and why.

use super::Options;
use super::program::{Clause, Rule, Test, UPPER, Verdict};
use crate::profile::Network;

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// Only `unshare` takes this one; in `clone` the bit is part of the exit signal.
const NEW_TIME_NAMESPACE: u32 = 0x80;
const TIOCSETD: u32 = 0x5423;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const SOCKET_TYPE: u32 = 0xf;

/// Since Linux 6.15; the C library does not name it yet. The number is the same on every machine.
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

/// The deny list, in no particular order.
pub(super) fn rules(options: Options) -> Vec<Rule> {
    let mut rules: Vec<Rule> = refused_always()
        .into_iter()
        .map(|call| Rule::refuse(call, libc::EPERM))
        .collect();
    // Programs that find these missing use older calls; the C library does so for clone3, whose flags are
    // out of a filter's reach.
    // Message queues by name outlive whoever made them, for the next command to find; there are kernels without them.
    for call in [
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_clone3,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ] {
        rules.push(Rule::refuse(call, libc::ENOSYS));
    }
    rules.push(Rule::refuse_if(
        libc::SYS_clone,
        0,
        Test::AnyBit(NEW_NAMESPACES),
        libc::EPERM,
    ));
    rules.push(Rule::refuse_if(
        libc::SYS_unshare,
        0,
        Test::AnyBit(NEW_NAMESPACES | NEW_TIME_NAMESPACE),
        libc::EPERM,
    ));
    // Typing into a terminal, and line disciplines, which are kernel code nobody tests.
    rules.push(Rule::refuse_if(
        libc::SYS_ioctl,
        1,
        Test::OneOf(&[TIOCSTI, TIOCLINUX, TIOCSETD]),
        libc::EPERM,
    ));
    // Whoever opens a file under a lease waits for its holder, and that may be the server.
    rules.push(Rule::refuse_if(
        libc::SYS_fcntl,
        1,
        Test::OneOf(&[libc::F_SETLEASE as u32]),
        libc::EPERM,
    ));
    rules.extend(resource_limits());
    if options.beside_others {
        rules.extend(refused_beside_others());
    }
    if options.refuse_memory_files {
        rules.push(Rule::refuse(libc::SYS_memfd_create, libc::EPERM));
    }
    rules.push(socket(options.network));
    rules.push(socket_pair());
    rules
}

/// Calls without a use inside a sandbox.
fn refused_always() -> Vec<libc::c_long> {
    let mut calls = vec![
        // Other processes: reading, writing, steering and cloning parts of them.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        // Mounts and namespaces, by the old and the new interface.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_setns,
        libc::SYS_open_tree,
        SYS_OPEN_TREE_ATTR,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        // Files by handle pass by every directory permission.
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        // Keys belong to a user, not to a sandbox.
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        // Large kernel surfaces with a history.
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_fanotify_init,
        libc::SYS_lookup_dcookie,
        libc::SYS_vhangup,
        libc::SYS_syslog,
        // The machine itself.
        libc::SYS_reboot,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_acct,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_nfsservctl,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS_uselib,
        libc::SYS_ustat,
    ]);
    calls.sort_unstable();
    calls.dedup();
    calls
}

/// Queues, semaphores and shared memory of the user's other programs, which are known by a number or a name and so need
/// not be made to be used, and the scheduling of any process but the caller.
fn refused_beside_others() -> Vec<Rule> {
    // `setpriority` and `ioprio_set` mean the same by other numbers.
    const PRIORITY_OF_USER: Test = Test::OneOf(&[libc::PRIO_USER]);
    const IO_PRIORITY_OF_USER: Test = Test::OneOf(&[3]);
    const SOMEBODY: Test = Test::AnyBit(u32::MAX);
    let objects = [
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
    ];
    let scheduling = [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ];
    let priorities = [
        (libc::SYS_setpriority, PRIORITY_OF_USER),
        (libc::SYS_ioprio_set, IO_PRIORITY_OF_USER),
    ];
    let objects = objects.map(|call| Rule::refuse(call, libc::EPERM));
    let scheduling = scheduling.map(|call| Rule::refuse_if(call, 0, SOMEBODY, libc::EPERM));
    let priorities = priorities.map(|(call, of_user)| Rule {
        call: call as u32,
        clauses: [(0, of_user), (1, SOMEBODY)]
            .map(|test| Clause::of(vec![test], Verdict::Errno(libc::EPERM)))
            .into(),
        otherwise: Verdict::Allow,
    });
    objects.into_iter().chain(scheduling).chain(priorities).collect()
}

/// Sockets. Local ones are refused either way: Landlock of this age cannot tell a socket in the workspace
/// from the container runtime's.
fn socket(network: Network) -> Rule {
    const FAMILY: u8 = 0;
    const TYPE: u8 = 1;
    const PROTOCOL: u8 = 2;
    match network {
        Network::Deny => Rule::refuse(libc::SYS_socket, libc::EACCES),
        Network::Allow => Rule {
            call: libc::SYS_socket as u32,
            clauses: vec![
                // Internet streams and datagrams, not raw ones, and not MPTCP, which Landlock's TCP rules miss.
                Clause::of(
                    vec![
                        (FAMILY, Test::OneOf(&[libc::AF_INET as u32, libc::AF_INET6 as u32])),
                        (
                            TYPE,
                            Test::MaskedOneOf(SOCKET_TYPE, &[libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32]),
                        ),
                        (
                            PROTOCOL,
                            Test::OneOf(&[0, libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32]),
                        ),
                    ],
                    Verdict::Allow,
                ),
                // The C library's getifaddrs and address sorting ask the routing table by netlink; without
                // capabilities that is reading only. Other netlink protocols stay closed.
                Clause::of(
                    vec![
                        (FAMILY, Test::OneOf(&[libc::AF_NETLINK as u32])),
                        (PROTOCOL, Test::OneOf(&[libc::NETLINK_ROUTE as u32])),
                    ],
                    Verdict::Allow,
                ),
            ],
            otherwise: Verdict::Errno(libc::EACCES),
        },
    }
}

/// Two sockets that are connected to one another reach nobody else, and programs talk to their children by them. One for
/// datagrams can be sent from, and connected, to any other local socket later, so those are refused.
fn socket_pair() -> Rule {
    const FAMILY: u8 = 0;
    const TYPE: u8 = 1;
    let connected = vec![
        (FAMILY, Test::OneOf(&[libc::AF_UNIX as u32])),
        (
            TYPE,
            Test::MaskedOneOf(SOCKET_TYPE, &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32]),
        ),
    ];
    Rule {
        call: libc::SYS_socketpair as u32,
        clauses: vec![Clause::of(connected, Verdict::Allow)],
        otherwise: Verdict::Errno(libc::EACCES),
    }
}

/// Limits of other processes: the keeper is one of them, and its limits are those of every later call. And the limit of
/// cores, which keeps the machine's program for them from being started: programs that set it mean to have none, so they
/// are told that they did.
fn resource_limits() -> [Rule; 2] {
    const PROCESS: u8 = 0;
    const RESOURCE: u8 = 1;
    const NEW_LIMIT: u8 = 2;
    const CORES: Test = Test::OneOf(&[libc::RLIMIT_CORE]);
    const GIVEN: Test = Test::AnyBit(u32::MAX);
    [
        Rule {
            call: libc::SYS_setrlimit as u32,
            clauses: vec![Clause::of(vec![(0, CORES)], Verdict::PassOver)],
            otherwise: Verdict::Allow,
        },
        Rule {
            call: libc::SYS_prlimit64 as u32,
            clauses: vec![
                Clause::of(vec![(PROCESS, GIVEN)], Verdict::Errno(libc::EPERM)),
                Clause::of(vec![(RESOURCE, CORES), (NEW_LIMIT, GIVEN)], Verdict::PassOver),
                Clause::of(vec![(RESOURCE, CORES), (NEW_LIMIT | UPPER, GIVEN)], Verdict::PassOver),
            ],
            otherwise: Verdict::Allow,
        },
    ]
}
