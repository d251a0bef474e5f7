//! Toolchains on this machine, and what the configuration must say so that commands can use them.
//!
//! Only looks: a program counts as found when it is on the `PATH` of whoever runs `config init`.

use std::path::{Path, PathBuf};

use super::surroundings::Surroundings;

/// What `config init` proposes.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Proposal {
    /// The toolchains, by the program that gave them away.
    pub(super) found: Vec<String>,
    /// Directories to add to the trusted path.
    pub(super) path: Vec<PathBuf>,
    pub(super) read_paths: Vec<PathBuf>,
    pub(super) helpers: Vec<(String, Vec<String>)>,
}

/// Readable to every command anyway.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];

/// Looks for cargo, node, python and go.
pub(super) fn look(surroundings: &Surroundings) -> Proposal {
    let machine = Machine { surroundings };
    let mut proposal = Proposal::default();
    machine.rust(&mut proposal);
    machine.node(&mut proposal);
    machine.python(&mut proposal);
    machine.go(&mut proposal);
    proposal
}

struct Machine<'a> {
    surroundings: &'a Surroundings,
}

impl Machine<'_> {
    fn rust(&self, proposal: &mut Proposal) {
        let Some(cargo) = self.program("cargo") else { return };
        proposal.add_program("cargo", &cargo);
        let cargo_home = self.home("CARGO_HOME", ".cargo");
        let rustup_home = self.home("RUSTUP_HOME", ".rustup");
        // Not the whole of it: the registry's token is kept there too.
        for name in ["bin", "registry", "git", "config.toml"] {
            proposal.add_readable(cargo_home.as_ref().map(|home| home.join(name)));
        }
        proposal.add_readable(rustup_home.clone());
        let mut helpers = self.programs(&["rustc", "rustdoc", "rustfmt", "clippy-driver", "cc", "ld", "as", "ar"]);
        // cargo and rustc of rustup start the real ones.
        for toolchain in entries(rustup_home.map(|home| home.join("toolchains"))) {
            helpers.extend(entries(Some(toolchain.join("bin"))).iter().map(|path| shown(path)));
        }
        // What `cc` starts when it links.
        for version in entries(Some(PathBuf::from("/usr/lib/gcc")))
            .into_iter()
            .flat_map(|target| entries(Some(target)))
        {
            helpers.extend(
                ["collect2", "lto-wrapper", "cc1"]
                    .iter()
                    .map(|name| version.join(name))
                    .filter(|path| path.is_file())
                    .map(|path| shown(&path)),
            );
        }
        helpers.push("workspace".to_owned());
        proposal.helpers.push(("cargo".to_owned(), helpers));
    }

    fn node(&self, proposal: &mut Proposal) {
        let Some(node) = self.program("node") else { return };
        proposal.add_program("node", &node);
        proposal.add_readable(prefix(&node));
        for launcher in ["npm", "npx"].into_iter().filter(|name| self.program(name).is_some()) {
            proposal.helpers.push((
                launcher.to_owned(),
                vec!["node".to_owned(), "sh".to_owned(), "workspace".to_owned()],
            ));
        }
    }

    fn python(&self, proposal: &mut Proposal) {
        let Some(python) = self.program("python3") else { return };
        proposal.add_program("python3", &python);
        proposal.add_readable(prefix(&python));
    }

    fn go(&self, proposal: &mut Proposal) {
        let Some(go) = self.program("go") else { return };
        proposal.add_program("go", &go);
        let root = prefix(&go);
        proposal.add_readable(root.clone());
        proposal.add_readable(self.home("GOPATH", "go").map(|path| path.join("pkg")));
        let tools = entries(root.map(|root| root.join("pkg/tool")))
            .into_iter()
            .flat_map(|target| entries(Some(target)));
        let mut helpers: Vec<String> = tools.map(|path| shown(&path)).collect();
        helpers.push("workspace".to_owned());
        proposal.helpers.push(("go".to_owned(), helpers));
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.surroundings.variable("PATH")?;
        std::env::split_paths(path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(name))
            .find(|file| file.is_file())
    }

    fn programs(&self, names: &[&str]) -> Vec<String> {
        names
            .iter()
            .filter(|name| self.program(name).is_some())
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn home(&self, variable: &str, under_home: &str) -> Option<PathBuf> {
        let named = self
            .surroundings
            .variable(variable)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute());
        named.or_else(|| self.surroundings.home.as_ref().map(|home| home.join(under_home)))
    }
}

impl Proposal {
    fn add_program(&mut self, name: &str, file: &Path) {
        self.found.push(name.to_owned());
        let known = super::keys::find("command_policy.path").map_or("", |key| key.default);
        let dir = file.parent().unwrap_or(file).to_owned();
        if !known.contains(&format!("\"{}\"", dir.display())) && !self.path.contains(&dir) {
            self.path.push(dir);
        }
    }

    fn add_readable(&mut self, path: Option<PathBuf>) {
        let Some(path) = path.filter(|path| path.exists() && path.parent().is_some()) else {
            return;
        };
        if !SYSTEM.iter().any(|dir| path.starts_with(dir)) && !self.read_paths.contains(&path) {
            self.read_paths.push(path);
        }
    }
}

/// The installation a program belongs to: what holds the `bin` it really lies in.
fn prefix(program: &Path) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let bin = real.parent()?;
    bin.ends_with("bin").then(|| bin.parent().map(Path::to_owned)).flatten()
}

fn entries(dir: Option<PathBuf>) -> Vec<PathBuf> {
    let Some(listing) = dir.and_then(|dir| std::fs::read_dir(dir).ok()) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = listing
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort();
    paths
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rustup_in_the_home_is_found_and_its_token_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_owned();
        for file in [
            ".cargo/bin/cargo",
            ".cargo/bin/rustc",
            ".cargo/registry/x",
            ".cargo/credentials.toml",
            ".rustup/toolchains/stable/bin/rustc",
        ] {
            let path = home.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let path = home.join(".cargo/bin").to_string_lossy().into_owned();
        let surroundings = Surroundings {
            variables: [("PATH".to_owned(), path)].into(),
            current_dir: "/".into(),
            home: Some(home.clone()),
            other_homes: Vec::new(),
        };
        let proposal = look(&surroundings);
        assert_eq!(proposal.found, ["cargo"]);
        assert_eq!(proposal.path, [home.join(".cargo/bin")]);
        assert_eq!(
            proposal.read_paths,
            [
                home.join(".cargo/bin"),
                home.join(".cargo/registry"),
                home.join(".rustup")
            ]
        );
        let (name, helpers) = &proposal.helpers[0];
        assert_eq!(name, "cargo");
        assert!(
            helpers.starts_with(&[
                "rustc".to_owned(),
                shown(&home.join(".rustup/toolchains/stable/bin/rustc"))
            ]),
            "{helpers:?}"
        );
        assert_eq!(helpers.last().map(String::as_str), Some("workspace"));
    }

    #[test]
    fn nothing_on_the_path_is_nothing_proposed() {
        let surroundings = Surroundings {
            variables: [("PATH".to_owned(), "relative:/nowhere".to_owned())].into(),
            current_dir: "/".into(),
            home: None,
            other_homes: Vec::new(),
        };
        assert_eq!(look(&surroundings), Proposal::default());
    }
}
