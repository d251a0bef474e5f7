//! The example server on real pipes, sockets and files.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SESSION: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    "\n",
);
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

fn server() -> Command {
    let test = std::env::current_exe().unwrap();
    let target: PathBuf = test.parent().unwrap().parent().unwrap().into();
    Command::new(target.join("examples").join("echo"))
}

fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
    flags & 0o4000 != 0
}

/// Runs a session and looks at the flags of descriptions that we share with the server.
fn talk(input: OwnedFd, output: OwnedFd, mut to: impl Write, from: impl Read, may_change_while_serving: bool) {
    let shared = [input.try_clone().unwrap(), output.try_clone().unwrap()];
    let mut child = server()
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output))
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(from).lines();
    to.write_all(SESSION.as_bytes()).unwrap();
    assert!(lines.next().unwrap().unwrap().contains("2025-11-25"));
    assert_eq!(lines.next().unwrap().unwrap(), PONG);
    for descriptor in &shared {
        assert_eq!(is_nonblocking(descriptor.as_fd()), may_change_while_serving);
    }
    drop(to);
    assert!(child.wait().unwrap().success());
    for descriptor in &shared {
        assert!(!is_nonblocking(descriptor.as_fd()));
    }
}

#[test]
fn pipes_are_served_and_left_as_they_were() {
    let (input, to) = std::io::pipe().unwrap();
    let (from, output) = std::io::pipe().unwrap();
    talk(input.into(), output.into(), to, from, false);
}

#[test]
fn sockets_are_served_and_left_as_they_were() {
    let (input, to) = UnixStream::pair().unwrap();
    let (from, output) = UnixStream::pair().unwrap();
    talk(input.into(), output.into(), to, from, true);
}

#[test]
fn one_socket_may_be_both() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = server()
        .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().unwrap())))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    (&ours).write_all(SESSION.as_bytes()).unwrap();
    let mut lines = BufReader::new(&ours).lines();
    assert!(lines.next().unwrap().is_ok());
    assert_eq!(lines.next().unwrap().unwrap(), PONG);
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn files_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    std::fs::write(&path, SESSION).unwrap();
    let mut output = tempfile::tempfile().unwrap();
    let status = server()
        .stdin(File::open(&path).unwrap())
        .stdout(output.try_clone().unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    let mut text = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().last(), Some(PONG));
}

#[test]
fn no_input_is_a_clean_end() {
    let done = server().stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success());
    assert!(done.stdout.is_empty() && done.stderr.is_empty());
}

#[test]
fn a_client_that_closes_our_output_ends_us_cleanly() {
    let (input, mut to) = std::io::pipe().unwrap();
    let (from, output) = std::io::pipe().unwrap();
    let mut child = server().stdin(input).stdout(output).spawn().unwrap();
    to.write_all(SESSION.as_bytes()).unwrap();
    let mut lines = BufReader::new(from).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    // Until the server has noticed, it takes requests; then it is gone and its pipe is broken.
    while to
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n")
        .is_ok()
    {
        std::thread::yield_now();
    }
    assert!(child.wait().unwrap().success());
}
