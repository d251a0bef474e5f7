//! What a launch through a keeper costs, beside posix_spawn, in one interleaved run.
//!
//!     cargo run --release -p countersign-sandbox --example launch_cost [ROUNDS]
//!
//! Prints p50 and p99 of start + exec + wait of `true` in microseconds. Only rows of one run compare.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use countersign_sandbox::{
    Body, ExecList, ExecRights, Identity, KeeperHandle, Launch, Layer, Limits, Mode, Network, Options, Outcome,
    Profile, Reply, Unchanged, Zygote, directory, program, wire,
};

struct Row {
    name: &'static str,
    micros: Vec<f64>,
    run: Box<dyn Fn() + Send>,
}

fn main() {
    let zygote = Zygote::start(Options {
        temp_base: None,
        namespaces: true,
        runner: Some(|_| 0),
    })
    .unwrap();
    let plain = Zygote::start(Options {
        temp_base: None,
        namespaces: false,
        runner: None,
    })
    .unwrap();
    let rounds: usize = std::env::args().nth(1).map_or(1000, |word| word.parse().unwrap());
    let is_root = File::open("/etc/shadow").is_ok();
    let profile = |mode| Profile {
        mode,
        network: Network::Deny,
        identity: is_root.then_some(Identity {
            uid: 65534,
            gid: 65534,
            groups: vec![],
        }),
        roots: vec!["/var/tmp".into()],
        read_paths: vec![],
        masked: vec!["/root".into()],
        protected: vec![],
        barred: vec![],
        exec_list: mode == Mode::WorkspaceWrite,
        closed: Vec::new(),
        noexec: countersign_sandbox::NoExec::Nothing,
        home: None,
        tmp: None,
        seen: Vec::new(),
        limits: Limits {
            memory_bytes: Some(512 << 20),
            cpu_millicores: None,
            pids: Some(256),
            file_bytes: None,
            open_files: 1024,
        },
        require: vec![Layer::Rlimits],
    };
    let confined = || profile(Mode::WorkspaceWrite);
    let mut rows = vec![
        Row {
            name: "posix_spawn",
            micros: vec![],
            run: Box::new(spawn),
        },
        Row {
            name: "keeper, all layers",
            micros: vec![],
            run: launcher(&zygote, &confined(), Kind::Exec),
        },
        Row {
            name: "keeper, no namespaces",
            micros: vec![],
            run: launcher(&plain, &confined(), Kind::Exec),
        },
        Row {
            name: "keeper, full access",
            micros: vec![],
            run: launcher(&zygote, &profile(Mode::DangerFullAccess), Kind::Exec),
        },
        Row {
            name: "keeper, aborted at the gate",
            micros: vec![],
            run: launcher(&zygote, &confined(), Kind::Abort),
        },
        Row {
            name: "keeper, empty runner",
            micros: vec![],
            run: launcher(&zygote, &confined(), Kind::Run),
        },
    ];
    let made = Instant::now();
    drop(zygote.keeper(&confined()).unwrap());
    println!("making a keeper: {:.0} us", made.elapsed().as_secs_f64() * 1e6);
    for round in 0..rounds + 20 {
        for row in &mut rows {
            let start = Instant::now();
            (row.run)();
            if round >= 20 {
                row.micros.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    for row in &mut rows {
        row.micros.sort_by(f64::total_cmp);
        let at = |part: f64| row.micros[(row.micros.len() as f64 * part) as usize];
        println!("{:<30} p50 {:>7.1}  p99 {:>7.1}", row.name, at(0.5), at(0.99));
    }
    for _ in 0..3 {
        let spawns = (0..8).map(|_| Box::new(spawn) as Box<dyn Fn() + Send>).collect();
        let keepers = (0..8).map(|_| launcher(&zygote, &confined(), Kind::Exec)).collect();
        let (bare, kept) = (per_second(rounds / 8, spawns), per_second(rounds / 8, keepers));
        println!("8 in flight, per second: posix_spawn {bare:.0}, keepers with all layers {kept:.0}");
    }
}

/// Calls per second of eight at once.
fn per_second(rounds: usize, runs: Vec<Box<dyn Fn() + Send>>) -> f64 {
    let (start, count) = (Instant::now(), runs.len() * rounds);
    std::thread::scope(|scope| {
        for run in runs {
            scope.spawn(move || (0..rounds).for_each(|_| run()));
        }
    });
    count as f64 / start.elapsed().as_secs_f64()
}

fn spawn() {
    let status = Command::new("/usr/bin/true")
        .stdin(Stdio::null())
        .env_clear()
        .status()
        .unwrap();
    assert!(status.success());
}

#[derive(Clone, Copy)]
enum Kind {
    Exec,
    Abort,
    Run,
}

fn launcher(zygote: &Zygote, profile: &Profile, kind: Kind) -> Box<dyn Fn() + Send> {
    let keeper: KeeperHandle = zygote.keeper(profile).unwrap();
    let directories = [PathBuf::from("/usr/bin")];
    let program = program::find("true", &directories).unwrap();
    let cwd = directory::open("/var/tmp".as_ref()).unwrap();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let launch = Launch {
        argv: vec![c"true".into()],
        env: vec![c"PATH=/usr/bin:/bin".into()],
        cwd: CString::new(cwd.path.as_os_str().as_bytes()).unwrap(),
        exec: ExecRights::Only(ExecList::new(program.exec_paths(&directories))),
        cpu_seconds: Some(60),
        ends_after_ms: None,
        programs: Vec::new(),
        body: match kind {
            Kind::Exec | Kind::Abort => Body::Exec {
                unchanged: Unchanged::default(),
            },
            Kind::Run => Body::Run { payload: vec![] },
        },
    };
    Box::new(move || {
        let fds = [
            cwd.fd.as_fd(),
            null.as_fd(),
            null.as_fd(),
            null.as_fd(),
            program.executable(),
        ];
        wire::send_launch(keeper.socket.as_fd(), &launch, &fds).unwrap();
        let word = if matches!(kind, Kind::Abort) {
            wire::ABORT
        } else {
            wire::GO
        };
        wire::send_control(keeper.socket.as_fd(), word).unwrap();
        match (wire::receive_reply(keeper.socket.as_fd()).unwrap(), kind) {
            (Reply::Exited(ending), Kind::Exec | Kind::Run) => {
                assert_eq!(ending.outcome, Outcome::Code(0))
            }
            (Reply::Aborted, Kind::Abort) => {}
            (other, _) => panic!("{other:?}"),
        }
    })
}
