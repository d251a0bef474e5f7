//! A small server: a zygote, a workspace and a keeper.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use countersign_sandbox::program::{self, Program};
use countersign_sandbox::{
    Body, Ending, ExecList, ExecRights, Identity, KeeperHandle, Launch, Layer, Limits, Mode, Network, Options, Outcome,
    Profile, Reply, Unchanged, Zygote, directory, wire,
};

use crate::attacks;
use crate::setting::{Setting, skip};

pub(crate) const NOBODY: u32 = 65534;

pub(crate) struct Server {
    pub(crate) zygote: Zygote,
    pub(crate) setting: Setting,
    /// Holds `workspace`, `outside` and `tmp`.
    pub(crate) base: tempfile::TempDir,
    pub(crate) workspace: PathBuf,
    pub(crate) outside: PathBuf,
}

impl Server {
    pub(crate) fn start(setting: Setting) -> Server {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let real = fs::canonicalize(base.path()).unwrap();
        let make = |name: &str| {
            let path = real.join(name);
            fs::create_dir(&path).unwrap();
            if setting.is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            path
        };
        let (workspace, outside) = (make("workspace"), make("outside"));
        make("tmp");
        fs::write(outside.join("secret"), "the secret").unwrap();
        let options = Options {
            temp_base: None,
            namespaces: setting.namespaces(),
            runner: Some(attacks::run),
        };
        Server {
            zygote: Zygote::start(options).unwrap(),
            setting,
            base,
            workspace,
            outside,
        }
    }

    pub(crate) fn profile(&self) -> Profile {
        Profile {
            mode: Mode::WorkspaceWrite,
            network: Network::Deny,
            identity: self.setting.is_root().then_some(Identity {
                uid: NOBODY,
                gid: NOBODY,
                groups: Vec::new(),
            }),
            roots: vec![self.workspace.clone()],
            read_paths: Vec::new(),
            masked: Vec::new(),
            protected: Vec::new(),
            barred: Vec::new(),
            exec_list: false,
            closed: Vec::new(),
            noexec: countersign_sandbox::NoExec::Nothing,
            home: None,
            tmp: Some(fs::canonicalize(self.base.path()).unwrap().join("tmp")),
            seen: Vec::new(),
            limits: Limits {
                memory_bytes: None,
                cpu_millicores: None,
                pids: Some(64),
                file_bytes: Some(1 << 30),
                open_files: 256,
            },
            require: [Layer::Landlock, Layer::Seccomp, Layer::NoNewPrivs, Layer::Rlimits]
                .into_iter()
                .filter(|layer| !crate::kernel::lacks(*layer))
                .collect(),
        }
    }

    pub(crate) fn keeper(&self, profile: &Profile) -> KeeperHandle {
        self.zygote.keeper(profile).unwrap()
    }

    /// One command in a keeper of the usual profile.
    pub(crate) fn sh(&self, line: &str) -> Done {
        sh(&self.keeper(&self.profile()), &self.workspace, line)
    }

    /// A file in the workspace that the command's user owns.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if self.setting.is_root() {
            let mut at = path.as_path();
            while at != self.workspace {
                chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
                at = at.parent().unwrap();
            }
        }
        path
    }
}

/// True when the keeper has the layer; otherwise the test says what it leaves out.
pub(crate) fn has(keeper: &KeeperHandle, layer: Layer) -> bool {
    let there = keeper.report.layers.contains(&layer);
    if !there {
        skip(layer.name(), &format!("{:?}", keeper.report.missing));
    }
    there
}

#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn ending(&self) -> &Ending {
        match &self.reply {
            Reply::Exited(ending) => ending,
            other => panic!("did not run: {other:?}"),
        }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        match self.ending().outcome {
            Outcome::Code(code) => Some(code),
            Outcome::Signal(_) => None,
        }
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &str {
        assert_eq!(self.code(), Some(0), "{self:?}");
        &self.stdout
    }

    /// The command ran, failed, and did not print what it must not.
    #[track_caller]
    pub(crate) fn refused(&self, unwanted: &str) {
        assert_ne!(self.code(), Some(0), "{self:?}");
        assert!(!self.stdout.contains(unwanted), "{self:?}");
    }
}

pub(crate) fn path_directories() -> Vec<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .map(PathBuf::from)
        .to_vec()
}

pub(crate) fn find(name: &str) -> Program {
    program::find(name, &path_directories()).unwrap()
}

pub(crate) fn c(text: impl AsRef<[u8]>) -> CString {
    CString::new(text.as_ref()).unwrap()
}

pub(crate) fn only(programs: &[&Program]) -> ExecRights {
    ExecRights::Only(ExecList::new(
        programs
            .iter()
            .flat_map(|program| program.exec_paths(&path_directories())),
    ))
}

pub(crate) fn launch(program: &Program, cwd: &Path, argv: &[&str]) -> Launch {
    Launch {
        argv: program.arguments(argv.iter().map(c).collect()),
        env: vec![c("PATH=/usr/local/bin:/usr/bin:/bin"), c("LC_ALL=C")],
        cwd: c(cwd.as_os_str().as_bytes()),
        exec: ExecRights::Any,
        cpu_seconds: Some(60),
        ends_after_ms: None,
        programs: Vec::new(),
        body: Body::Exec {
            unchanged: Unchanged {
                scripts: program.script_checks(),
                executable: None,
            },
        },
    }
}

/// A launch that was sent and has not been let go.
pub(crate) struct Pending {
    streams: Vec<JoinHandle<String>>,
}

fn reader(mut pipe: PipeReader) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    })
}

pub(crate) fn send(keeper: &KeeperHandle, launch: &Launch, cwd: &OwnedFd, programs: &[BorrowedFd<'_>]) -> Pending {
    let (stdout, stdout_writer) = std::io::pipe().unwrap();
    let (stderr, stderr_writer) = std::io::pipe().unwrap();
    let stdin = File::open("/dev/null").unwrap();
    let mut fds = vec![cwd.as_fd(), stdin.as_fd(), stdout_writer.as_fd(), stderr_writer.as_fd()];
    fds.extend(programs);
    wire::send_launch(keeper.socket.as_fd(), launch, &fds).unwrap();
    Pending {
        streams: vec![reader(stdout), reader(stderr)],
    }
}

pub(crate) fn control(keeper: &KeeperHandle, word: u8) {
    wire::send_control(keeper.socket.as_fd(), word).unwrap();
}

impl Pending {
    /// Waits for the reply and then for both streams: a survivor that held one would hang the test.
    pub(crate) fn finish(self, keeper: &KeeperHandle) -> Done {
        let reply = wire::receive_reply(keeper.socket.as_fd()).unwrap();
        let mut texts = self.streams.into_iter().map(|stream| stream.join().unwrap());
        Done {
            reply,
            stdout: texts.next().unwrap(),
            stderr: texts.next().unwrap(),
        }
    }
}

pub(crate) fn run(keeper: &KeeperHandle, launch: &Launch, programs: &[BorrowedFd<'_>]) -> Done {
    let cwd = directory::open(Path::new(std::ffi::OsStr::from_bytes(launch.cwd.as_bytes()))).unwrap();
    let pending = send(keeper, launch, &cwd.fd, programs);
    control(keeper, wire::GO);
    pending.finish(keeper)
}

pub(crate) fn exec(keeper: &KeeperHandle, cwd: &Path, argv: &[&str], rights: ExecRights) -> Done {
    let program = find(argv[0]);
    let launch = Launch {
        exec: rights,
        ..launch(&program, cwd, argv)
    };
    run(keeper, &launch, &[program.executable()])
}

pub(crate) fn sh(keeper: &KeeperHandle, cwd: &Path, line: &str) -> Done {
    exec(keeper, cwd, &["sh", "-c", line], ExecRights::Any)
}

/// Runs one of the functions in `attacks` inside the sandbox.
pub(crate) fn attack(keeper: &KeeperHandle, cwd: &Path, name: &str) -> Done {
    let sh = find("sh");
    let launch = Launch {
        body: Body::Run {
            payload: name.as_bytes().to_vec(),
        },
        ..launch(&sh, cwd, &["sh"])
    };
    run(keeper, &launch, &[sh.executable()])
}

/// Sets how many files this process may open, and tells how many it might.
pub(crate) fn open_files_max(wanted: u64) -> u64 {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit64 to write to and to read from.
    unsafe {
        assert_eq!(libc::getrlimit64(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, wanted);
        assert_eq!(libc::setrlimit64(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}
