//! Turns rules into a BPF program: architecture check, x32 check, then a binary search over call numbers
//! whose leaves look at arguments where a rule asks for it.

use libc::sock_filter;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Errno(i32),
    /// Nothing is done, and the caller is told that it was.
    PassOver,
}

/// A question about half of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    AnyBit(u32),
    OneOf(&'static [u32]),
    /// One of these after masking.
    MaskedOneOf(u32, &'static [u32]),
}

/// One call: the verdict of the first clause all of whose tests hold, or else the last word.
pub(super) struct Rule {
    pub(super) call: u32,
    pub(super) clauses: Vec<Clause>,
    pub(super) otherwise: Verdict,
}

/// Tests of arguments by their index, and what they lead to.
pub(super) struct Clause {
    pub(super) tests: Vec<(u8, Test)>,
    pub(super) verdict: Verdict,
}

impl Rule {
    pub(super) fn refuse(call: libc::c_long, errno: i32) -> Rule {
        Rule {
            call: call as u32,
            clauses: Vec::new(),
            otherwise: Verdict::Errno(errno),
        }
    }

    pub(super) fn refuse_if(call: libc::c_long, argument: u8, test: Test, errno: i32) -> Rule {
        Rule {
            call: call as u32,
            clauses: vec![Clause::of(vec![(argument, test)], Verdict::Errno(errno))],
            otherwise: Verdict::Allow,
        }
    }
}

impl Clause {
    pub(super) fn of(tests: Vec<(u8, Test)>, verdict: Verdict) -> Clause {
        Clause { tests, verdict }
    }
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const IF_BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;

/// Offsets in struct seccomp_data.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Marks an argument's index: its upper half is meant.
pub(super) const UPPER: u8 = 0x80;
/// The lower half of an argument, or the upper one; both our architectures are little endian.
const fn argument(index: u8) -> u32 {
    let half = if index & UPPER == 0 { 0 } else { 4 };
    16 + 8 * (index & !UPPER) as u32 + half
}

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xC000_00B7;
/// Numbers from here on are x32 calls on x86_64 and nothing anywhere else.
const X32: u32 = 0x4000_0000;

/// The whole program for these rules.
pub(super) fn assemble(rules: &[Rule]) -> Vec<sock_filter> {
    let mut rules: Vec<&Rule> = rules.iter().collect();
    rules.sort_by_key(|rule| rule.call);
    let mut program = vec![
        plain(LOAD, ARCHITECTURE),
        branch(IF_EQUAL, OURS, 1, 0),
        // A program of another architecture numbers its calls differently; it could not even exit by error.
        plain(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        plain(LOAD, NUMBER),
        branch(IF_AT_LEAST, X32, 0, 1),
        verdict(Verdict::Errno(libc::ENOSYS)),
    ];
    program.extend(search(&rules));
    program
}

fn search(rules: &[&Rule]) -> Vec<sock_filter> {
    match rules {
        [] => vec![verdict(Verdict::Allow)],
        [rule] => {
            let mut code = vec![branch(IF_EQUAL, rule.call, 1, 0), verdict(Verdict::Allow)];
            code.extend(leaf(rule));
            code
        }
        _ => {
            let (low, high) = rules.split_at(rules.len() / 2);
            let low_code = search(low);
            let mut code = match u8::try_from(low_code.len()) {
                Ok(distance) => vec![branch(IF_AT_LEAST, high[0].call, distance, 0)],
                Err(_) => vec![
                    branch(IF_AT_LEAST, high[0].call, 0, 1),
                    plain(JUMP, low_code.len() as u32),
                ],
            };
            code.extend(low_code);
            code.extend(search(high));
            code
        }
    }
}

/// Code for a call that is known to be the rule's.
fn leaf(rule: &Rule) -> Vec<sock_filter> {
    let mut code = Vec::new();
    for clause in &rule.clauses {
        // Built from the back: each test knows how far the end of its clause is.
        let mut tail = vec![verdict(clause.verdict)];
        for (index, test) in clause.tests.iter().rev() {
            let mut piece = ask(*index, *test, tail.len());
            piece.append(&mut tail);
            tail = piece;
        }
        code.extend(tail);
    }
    code.push(verdict(rule.otherwise));
    code
}

/// Falls through when the test holds, else skips the `rest` instructions that follow.
fn ask(index: u8, test: Test, rest: usize) -> Vec<sock_filter> {
    let mut code = vec![plain(LOAD, argument(index))];
    let (mask, values) = match test {
        Test::AnyBit(bits) => {
            code.push(branch(IF_BITS, bits, 0, rest as u8));
            return code;
        }
        Test::OneOf(values) => (None, values),
        Test::MaskedOneOf(mask, values) => (Some(mask), values),
    };
    code.extend(mask.map(|mask| plain(AND, mask)));
    for (position, value) in values.iter().enumerate() {
        let left = values.len() - position - 1;
        let miss = if left == 0 { rest as u8 } else { 0 };
        code.push(branch(IF_EQUAL, *value, left as u8, miss));
    }
    code
}

fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn verdict(verdict: Verdict) -> sock_filter {
    match verdict {
        Verdict::Allow => plain(RETURN, libc::SECCOMP_RET_ALLOW),
        Verdict::Errno(errno) => plain(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32),
        Verdict::PassOver => plain(RETURN, libc::SECCOMP_RET_ERRNO),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use crate::profile::Network;

    /// What the kernel would answer.
    fn run(program: &[sock_filter], arch: u32, number: u32, arguments: [u32; 3]) -> u32 {
        run_wide(program, arch, number, arguments.map(u64::from))
    }

    fn run_wide(program: &[sock_filter], arch: u32, number: u32, arguments: [u64; 3]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            match step.code {
                LOAD => {
                    value = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => arch,
                        offset => {
                            let argument = arguments[(offset as usize - 16) / 8];
                            (argument >> (8 * (offset % 8))) as u32
                        }
                    }
                }
                AND => value &= step.k,
                JUMP => at += step.k as usize,
                RETURN => return step.k,
                code => {
                    let holds = match code {
                        IF_EQUAL => value == step.k,
                        IF_AT_LEAST => value >= step.k,
                        IF_BITS => value & step.k != 0,
                        other => panic!("unknown instruction {other}"),
                    };
                    at += usize::from(if holds { step.jt } else { step.jf });
                }
            }
        }
    }

    fn filter(network: Network) -> Vec<sock_filter> {
        assemble(&table::rules(super::super::Options {
            network,
            refuse_memory_files: true,
            beside_others: true,
        }))
    }

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    fn errno(errno: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno as u32
    }

    #[test]
    fn every_rule_is_found_and_no_other_number_is() {
        let rules = table::rules(super::super::Options {
            network: Network::Deny,
            refuse_memory_files: true,
            beside_others: true,
        });
        let program = assemble(&rules);
        for number in 0..1000 {
            let expected = match rules.iter().find(|rule| rule.call == number) {
                Some(rule) => verdict(rule.otherwise).k,
                None => ALLOW,
            };
            assert_eq!(run(&program, OURS, number, [0; 3]), expected, "call {number}");
        }
    }

    #[test]
    fn foreign_architectures_and_x32_numbers_are_refused() {
        let program = filter(Network::Deny);
        assert_eq!(run(&program, 0x4000_0003, 0, [0; 3]), libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(
            run(&program, OURS, X32 | libc::SYS_ptrace as u32, [0; 3]),
            errno(libc::ENOSYS)
        );
        assert_eq!(run(&program, OURS, X32 | 1, [0; 3]), errno(libc::ENOSYS));
    }

    #[test]
    fn namespaces_are_refused_and_threads_are_not() {
        let program = filter(Network::Deny);
        let clone = libc::SYS_clone as u32;
        assert_eq!(
            run(
                &program,
                OURS,
                clone,
                [libc::CLONE_VM as u32 | libc::SIGCHLD as u32, 0, 0]
            ),
            ALLOW
        );
        assert_eq!(
            run(&program, OURS, clone, [libc::CLONE_NEWUSER as u32, 0, 0]),
            errno(libc::EPERM)
        );
        assert_eq!(
            run(
                &program,
                OURS,
                libc::SYS_unshare as u32,
                [libc::CLONE_FILES as u32, 0, 0]
            ),
            ALLOW
        );
        assert_eq!(
            run(&program, OURS, libc::SYS_unshare as u32, [0x80, 0, 0]),
            errno(libc::EPERM)
        );
    }

    #[test]
    fn the_limit_of_cores_can_be_read_and_a_change_of_it_is_passed_over() {
        let program = filter(Network::Deny);
        let nothing_done = libc::SECCOMP_RET_ERRNO;
        let core = u64::from(libc::RLIMIT_CORE);
        let files = u64::from(libc::RLIMIT_NOFILE);
        for (call, arguments, expected) in [
            (libc::SYS_setrlimit, [core, 0x1000, 0], nothing_done),
            (libc::SYS_setrlimit, [files, 0x1000, 0], ALLOW),
            (libc::SYS_prlimit64, [0, core, 0x1000], nothing_done),
            // A pointer is no less one for its lower half being empty.
            (libc::SYS_prlimit64, [0, core, 1 << 32], nothing_done),
            (libc::SYS_prlimit64, [0, core, 0], ALLOW),
            (libc::SYS_prlimit64, [0, files, 0x1000], ALLOW),
            (libc::SYS_prlimit64, [7, core, 0x1000], errno(libc::EPERM)),
            (libc::SYS_prlimit64, [7, files, 0], errno(libc::EPERM)),
        ] {
            let found = run_wide(&program, OURS, call as u32, arguments);
            assert_eq!(found, expected, "{call} {arguments:x?}");
        }
    }

    #[test]
    fn pairs_of_sockets_are_for_streams_and_messages_and_not_for_datagrams() {
        let unix = libc::AF_UNIX as u32;
        let closing = libc::SOCK_CLOEXEC as u32 | libc::SOCK_NONBLOCK as u32;
        for (kind, is_open) in [
            (libc::SOCK_STREAM, true),
            (libc::SOCK_SEQPACKET, true),
            (libc::SOCK_DGRAM, false),
            (libc::SOCK_RAW, false),
        ] {
            let expected = if is_open { ALLOW } else { errno(libc::EACCES) };
            for network in [Network::Allow, Network::Deny] {
                for kind in [kind as u32, kind as u32 | closing] {
                    let found = run(&filter(network), OURS, libc::SYS_socketpair as u32, [unix, kind, 0]);
                    assert_eq!(found, expected, "{kind}");
                }
            }
        }
    }

    #[test]
    fn sockets_follow_the_network_choice() {
        let socket = libc::SYS_socket as u32;
        let (inet, unix, netlink) = (libc::AF_INET as u32, libc::AF_UNIX as u32, libc::AF_NETLINK as u32);
        let (stream, raw) = (
            libc::SOCK_STREAM as u32 | libc::SOCK_CLOEXEC as u32,
            libc::SOCK_RAW as u32,
        );
        let table = [
            ([inet, stream, 0], ALLOW),
            ([libc::AF_INET6 as u32, libc::SOCK_DGRAM as u32, 17], ALLOW),
            ([inet, stream, 262], errno(libc::EACCES)),
            ([inet, raw, 1], errno(libc::EACCES)),
            ([unix, stream, 0], errno(libc::EACCES)),
            ([netlink, raw, 0], ALLOW),
            ([netlink, raw, 15], errno(libc::EACCES)),
            ([libc::AF_VSOCK as u32, stream, 0], errno(libc::EACCES)),
        ];
        for (arguments, expected) in table {
            assert_eq!(
                run(&filter(Network::Allow), OURS, socket, arguments),
                expected,
                "{arguments:?}"
            );
            assert_eq!(
                run(&filter(Network::Deny), OURS, socket, arguments),
                errno(libc::EACCES)
            );
        }
    }
}
