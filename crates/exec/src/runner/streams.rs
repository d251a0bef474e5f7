//! The three standard streams of one command, after its pipe and its redirections.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use countersign_gateway::policy::line::tree::{Action, Redirection};
use countersign_sandbox::runner;
use rustix::pipe::fcntl_getpipe_size;

pub(super) struct Streams([Stream; 3]);

#[derive(Clone)]
enum Stream {
    Own(BorrowedFd<'static>),
    Opened(Arc<OwnedFd>),
}

impl Streams {
    /// The pipe first, then the redirections from left to right. What cannot be done is told where standard error leads
    /// by then.
    pub(super) fn connect(
        input: Option<OwnedFd>,
        output: Option<OwnedFd>,
        redirections: &[Redirection],
        tmp: &Path,
    ) -> Option<Self> {
        let mut streams = Self(runner::standard_streams().map(Stream::Own));
        for (index, end) in [(0, input), (1, output)] {
            if let Some(end) = end {
                streams.0[index] = Stream::Opened(Arc::new(end));
            }
        }
        for redirection in redirections {
            if let Err(message) = streams.redirect(redirection, tmp) {
                streams.complain(&message);
                return None;
            }
        }
        Some(streams)
    }

    fn redirect(&mut self, redirection: &Redirection, tmp: &Path) -> Result<(), String> {
        let stream = match &redirection.action {
            Action::Read(path) => open(path, OpenOptions::new().read(true))?,
            Action::Write(path) => open(path, OpenOptions::new().write(true).create(true).truncate(true))?,
            Action::Append(path) => open(path, OpenOptions::new().append(true).create(true))?,
            Action::ReadWrite(path) => open(
                path,
                OpenOptions::new().read(true).write(true).create(true).truncate(false),
            )?,
            Action::CopyOf(fd) => place(&mut self.0, *fd)?.clone(),
            Action::Close => open("/dev/null", OpenOptions::new().read(true).write(true))?,
            Action::Text(text) => here(text, tmp)?,
        };
        *place(&mut self.0, redirection.fd)? = stream;
        Ok(())
    }

    pub(super) fn stdin(&self) -> BorrowedFd<'_> {
        self.0[0].as_fd()
    }

    pub(super) fn stdout(&self) -> BorrowedFd<'_> {
        self.0[1].as_fd()
    }

    pub(super) fn stderr(&self) -> BorrowedFd<'_> {
        self.0[2].as_fd()
    }

    pub(super) fn complain(&self, message: &str) {
        super::say(self.stderr(), message);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

fn place(streams: &mut [Stream; 3], fd: u32) -> Result<&mut Stream, String> {
    usize::try_from(fd)
        .ok()
        .and_then(|index| streams.get_mut(index))
        .ok_or_else(|| format!("{fd}: bad file descriptor"))
}

fn open(path: &str, options: &OpenOptions) -> Result<Stream, String> {
    match options.open(path) {
        Ok(file) => Ok(Stream::Opened(Arc::new(file.into()))),
        Err(error) => Err(format!("{path}: {}", in_words(&error))),
    }
}

/// What is wrong, in the words that every shell has for it.
pub(super) fn in_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A here-document: the text, ready to be read. A long one goes through a file in the private directory: the working
/// directory may be one that commands only read.
fn here(text: &str, tmp: &Path) -> Result<Stream, String> {
    let failed = |error: std::io::Error| format!("cannot pass on the here-document: {error}");
    let (reader, mut writer) = std::io::pipe().map_err(failed)?;
    // Less than usual for a user who has many pipes; nobody reads it yet.
    let held = fcntl_getpipe_size(&writer).map_err(|error| failed(error.into()))?;
    if text.len() <= held {
        writer.write_all(text.as_bytes()).map_err(failed)?;
        return Ok(Stream::Opened(Arc::new(reader.into())));
    }
    let path = tmp.join(format!("here-document-{}", std::process::id()));
    let mut file = File::create_new(&path).map_err(failed)?;
    let written = file.write_all(text.as_bytes());
    let opened = File::open(&path);
    std::fs::remove_file(&path).and(written).map_err(failed)?;
    opened.map(|file| Stream::Opened(Arc::new(file.into()))).map_err(failed)
}
