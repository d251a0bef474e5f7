//! The same tests on another kernel: one with cgroup version 2 and without Landlock.
//!
//! Linux as a process (Debian's `user-mode-linux`) starts with this machine's files, mounts version 2, and runs this
//! binary again. It is a real kernel of its own, so limits are limits and not a tree of files that looks like some.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use countersign_sandbox::Layer;

use crate::ending::wait_until;
use crate::setting::{Setting, own_uid, skip};
use crate::support::{Server, has, sh};

/// Names the layers that the kernel of this run does not offer.
const LACKING: &str = "COUNTERSIGN_TEST_LACKING";
const KERNEL: &str = "linux.uml";

/// Where the first process of the other kernel is an ordinary user's, in a cgroup that was handed to them.
const DELEGATED: &str = "COUNTERSIGN_TEST_DELEGATED";

/// Everything is mounted anew and the machine's files can only be read. The last words tell how it went.
const INIT: &str = r#"#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp COUNTERSIGN_TEST_LACKING=landlock
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run
mkdir -p /dev/shm /dev/pts && mount -t tmpfs tmpfs /dev/shm && mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
chmod 1777 /tmp
(WORK)
echo "the other kernel is done: $?"
echo o > /proc/sysrq-trigger
sleep 60
"#;

pub(crate) fn lacks(layer: Layer) -> bool {
    std::env::var(LACKING).is_ok_and(|names| names.split(',').any(|name| name == layer.name()))
}

/// What the other kernel's console says while it runs `work`, in which `$TESTS` is this binary; nothing without such a kernel.
fn boot(what: &str, work: &str) -> Option<String> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(KERNEL).is_file()));
    if !found {
        assert!(
            std::env::var_os("COUNTERSIGN_REQUIRE_KERNEL").is_none(),
            "{what}: user-mode-linux is not installed"
        );
        skip(what, "user-mode-linux is not installed");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let init = place.path().join("init");
    let tests = std::env::current_exe().unwrap();
    let script = INIT.replace("(WORK)", &format!("TESTS={}\n{work}", tests.display()));
    std::fs::File::create(&init)
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut said = console(&init, place.path(), Registers::All);
    if said.contains("ptrace set fp regs failed") {
        said = console(&init, place.path(), Registers::Old);
    }
    assert!(said.contains("the other kernel is done: 0"), "{said}");
    Some(said)
}

/// Which registers of its programs the other kernel sets. It knows how large all of them were on processors of its time, and
/// gives up on one that has more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registers {
    All,
    /// Those that every processor has. It makes do with them where it is told that there are no others.
    Old,
}

fn console(init: &Path, place: &Path, registers: Registers) -> String {
    // Its own end is the last resort of a kernel that hangs.
    let mut command = Command::new("timeout");
    command
        .args([
            "--signal=KILL",
            "240",
            KERNEL,
            "mem=1200M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "ro",
            "quiet",
        ])
        .args(["con=null", "con0=null,fd:1"])
        .arg(format!("init={}", init.display()))
        .arg(format!("uml_dir={}", place.display()))
        .env("TMPDIR", memory())
        .stdin(Stdio::null());
    if registers == Registers::Old {
        // It keeps no others when it goes from one thread to the next, so programs may not use them.
        command.arg("GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2,-AVX512F,-AVX512VL,-AVX512BW");
        // SAFETY: only makes system calls.
        unsafe { command.pre_exec(hide_registers) };
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// From here on whoever asks for the registers that not every processor has is told that there are none.
fn hide_registers() -> std::io::Result<()> {
    const PTRACE_GETREGSET: u32 = 0x4204;
    const NT_X86_XSTATE: u32 = 0x202;
    /// Bytes before the arguments of a call in what a filter sees, and of one argument.
    const ARGUMENTS: u32 = 16;
    const ARGUMENT: u32 = 8;
    let load = |at: u32| (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at);
    let go_on_if = |is: u32, otherwise: u8| (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, otherwise, is);
    let answer = |with: u32| (libc::BPF_RET | libc::BPF_K, 0, with);
    let steps = [
        load(0),
        go_on_if(libc::SYS_ptrace as u32, 5),
        load(ARGUMENTS),
        go_on_if(PTRACE_GETREGSET, 3),
        load(ARGUMENTS + 2 * ARGUMENT),
        go_on_if(NT_X86_XSTATE, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let mut filter = steps.map(|(code, jf, k)| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    });
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: sets a flag of this process.
    let has_flag = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: reads a valid filter.
    if has_flag && unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

/// The other kernel's memory is a file; best one that never reaches a disk.
fn memory() -> &'static str {
    if Path::new("/dev/shm").is_dir() {
        "/dev/shm"
    } else {
        "/tmp"
    }
}

#[test]
fn limits_hold_for_whole_trees_on_version_2_and_leave_nothing_behind() {
    // Where there is no cgroup the tests of limits would say so and pass; here they may not.
    let work = "COUNTERSIGN_REQUIRE_LAYERS=all \"$TESTS\" --color never --test-threads 2 limits:: ending::a_finished_zygote ending::a_killed_server 2>&1";
    let Some(said) = boot("limits on cgroup version 2", work) else {
        return;
    };
    for test in [
        "limits::a_fork_bomb_hits_the_pids_limit_and_is_reported",
        "limits::memory_that_runs_out_is_reported",
        "limits::a_cpu_share_slows_and_does_not_kill",
        "limits::a_command_goes_before_its_keeper_when_memory_runs_out",
        "ending::a_finished_zygote_leaves_no_cgroup_and_no_temporary_files",
        "ending::a_killed_server_takes_everything_with_it",
    ] {
        assert!(said.contains(&format!("test {test} ... ok")), "{test}:\n{said}");
    }
}

#[test]
fn an_ordinary_user_limits_whole_trees_in_a_cgroup_that_was_handed_to_them() {
    // What a service manager does with a unit that asks for delegation.
    let work = format!(
        "mkdir /sys/fs/cgroup/unit
         echo '+memory +pids +cpu' > /sys/fs/cgroup/cgroup.subtree_control
         chown -R {USER}:{USER} /sys/fs/cgroup/unit
         {DELEGATED}=1 sh -c 'echo $$ > /sys/fs/cgroup/unit/cgroup.procs; exec setpriv --reuid={USER} --regid={USER} --clear-groups \"$0\" --exact kernel::server_of_a_delegated_cgroup --nocapture' \"$TESTS\" 2>&1",
        USER = crate::setting::USER
    );
    let Some(said) = boot("a delegated cgroup", &work) else {
        return;
    };
    assert!(said.contains("the whole tree was limited"), "{said}");
}

/// Not a test by itself: what the test above runs on the other kernel.
#[test]
fn server_of_a_delegated_cgroup() {
    if std::env::var_os(DELEGATED).is_none() {
        return;
    }
    assert_ne!(own_uid(), 0);
    let server = Server::start(Setting::User);
    // An agent before the first command: the server steps aside without its zygote.
    crate::agents::is_started("none");
    let mut profile = server.profile();
    profile.limits.memory_bytes = Some(48 << 20);
    let keeper = server.keeper(&profile);
    assert!(has(&keeper, Layer::Cgroup), "{:?}", keeper.report.missing);
    let done = sh(&keeper, &server.workspace, "head -c 200000000 /dev/zero | tail");
    assert!(done.ending().hits.memory, "{done:?}");
    // The server has stepped aside by now, for the keeper's sake.
    for mark in ["one", "two"] {
        crate::agents::is_found_in_its_cgroup(mark);
    }
    eprintln!("the whole tree was limited");
}

#[test]
fn a_kernel_without_landlock_runs_nothing_where_landlock_is_required() {
    let work = "\"$TESTS\" --exact kernel::server_that_requires_landlock --nocapture 2>&1";
    let Some(said) = boot("a kernel without Landlock", work) else {
        return;
    };
    assert!(said.contains("refused: "), "{said}");
}

/// Not a test by itself: what the test above runs on the other kernel.
#[test]
fn server_that_requires_landlock() {
    if !lacks(Layer::Landlock) {
        return;
    }
    let server = Server::start(Setting::Root);
    let mut profile = server.profile();
    profile.require.push(Layer::Landlock);
    let error = server.zygote.keeper(&profile).unwrap_err();
    assert!(
        format!("{error:?}").contains("this kernel has no landlock"),
        "{error:?}"
    );
    eprintln!("refused: {error}");
}

#[test]
fn a_command_that_crashes_starts_no_program_for_cores() {
    let work = "echo '|/bin/sh -c >/tmp/core-of-%e' > /proc/sys/kernel/core_pattern
         \"$TESTS\" --exact kernel::crashes_of_commands --nocapture 2>&1";
    let Some(said) = boot("a program for cores", work) else {
        return;
    };
    assert!(said.contains("nobody saw the cores"), "{said}");
}

/// Not a test by itself: what the test above runs on the other kernel.
#[test]
fn crashes_of_commands() {
    if !lacks(Layer::Landlock) {
        return;
    }
    let crash = "kill -SEGV $$";
    let seen = |name: &str| Path::new(&format!("/tmp/core-of-{name}")).exists();
    let died = Command::new("bash").args(["-c", crash]).status().unwrap();
    assert!(!died.success());
    wait_until("a crash outside is seen", || seen("bash"));
    let server = Server::start(Setting::Root);
    let keeper = server.keeper(&server.profile());
    for line in [
        crash,
        &format!("ulimit -c 0; {crash}"),
        &format!("ulimit -c unlimited; {crash}"),
    ] {
        sh(&keeper, &server.workspace, line);
    }
    // Those that are handed on are handed on in their order.
    std::fs::remove_file("/tmp/core-of-bash").unwrap();
    Command::new("bash").args(["-c", crash]).status().unwrap();
    wait_until("a crash outside is seen", || seen("bash"));
    assert!(!seen("sh") && !seen("dash"));
    eprintln!("nobody saw the cores");
}
