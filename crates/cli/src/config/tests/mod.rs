//! The loader as a whole: real files in a made-up home, workspace and environment.

mod approvers;
mod environment;
mod files;
mod project;
mod property;
mod shipped;

use std::path::{Path, PathBuf};

use super::{Flags, Problems, Settings, Surroundings, load, trust};

/// A home, a workspace that is the current directory, and what the process is started with.
struct World {
    dir: tempfile::TempDir,
    surroundings: Surroundings,
    flags: Flags,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "work/inner", "elsewhere"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let surroundings = Surroundings {
            variables: Default::default(),
            current_dir: root.join("work"),
            home: Some(root.join("home")),
            other_homes: Vec::new(),
        };
        Self {
            dir,
            surroundings,
            flags: Flags::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn operator(self, text: &str) -> Self {
        self.write("home/.config/countersign/config.yaml", text);
        self
    }

    fn project(self, text: &str) -> Self {
        self.write("work/.countersign/config.yaml", text);
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.surroundings.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn trusting(self, file: &str) -> Self {
        trust(&self.state_dir(), &self.path(file)).unwrap();
        self
    }

    fn state_dir(&self) -> PathBuf {
        self.path("home/.local/state/countersign")
    }

    fn load(&self) -> Result<Settings, Problems> {
        load(&self.surroundings, &self.flags)
    }

    #[track_caller]
    fn settings(&self) -> Settings {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.load().err().map_or_else(Vec::new, |problems| problems.0);
        problems
            .iter()
            .map(|problem| problem.to_string().replace(&*self.path("").to_string_lossy(), "/"))
            .collect()
    }
}

/// Warnings as text, with the world's own directory cut off.
fn warnings(world: &World, settings: &Settings) -> Vec<String> {
    let root = world.path("");
    settings
        .warnings
        .iter()
        .map(|warning| warning.to_string().replace(&*root.to_string_lossy(), "/"))
        .collect()
}

fn origin(settings: &Settings, key: &str) -> String {
    settings.held(key).expect(key).origin.to_string()
}

fn is(path: &Option<PathBuf>, expected: &Path) -> bool {
    path.as_deref() == Some(expected)
}
