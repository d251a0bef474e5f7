//! Paths as the kernel names them. The hidden places are some hundred, nearly none of which is there, and most lie in the same few
//! directories: each of those is looked at once, and below what is missing nothing is looked for.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use countersign_exec::real_name;

/// Real names that were looked up so far.
#[derive(Default)]
pub(crate) struct RealNames<'a> {
    known: HashMap<&'a Path, Found>,
}

#[derive(Clone)]
struct Found {
    name: PathBuf,
    is_there: bool,
}

impl<'a> RealNames<'a> {
    /// The real name of a path; what does not exist yet will be where its directory is.
    pub(crate) fn of(&mut self, path: &'a Path) -> PathBuf {
        // `..` behind a link leads elsewhere than the text says.
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if path.is_absolute() && path.components().all(is_plain) {
            self.find(path).name
        } else {
            walked(path)
        }
    }

    fn find(&mut self, path: &'a Path) -> Found {
        if let Some(found) = self.known.get(path) {
            return found.clone();
        }
        let found = match (path.parent(), path.file_name()) {
            (Some(parent), Some(last)) => below(&self.find(parent), last.as_ref()),
            (_, _) => Found {
                name: path.to_owned(),
                is_there: true,
            },
        };
        self.known.insert(path, found.clone());
        found
    }
}

fn below(parent: &Found, last: &Path) -> Found {
    let name = parent.name.join(last);
    let found = match parent.is_there {
        true => fs::symlink_metadata(&name).ok(),
        false => None,
    };
    match found {
        None => Found { name, is_there: false },
        Some(metadata) if !metadata.is_symlink() => Found { name, is_there: true },
        Some(_) => match real_name(&name) {
            Ok(real) => Found {
                name: real,
                is_there: true,
            },
            Err(_) => Found { name, is_there: false },
        },
    }
}

/// The same for any path, part by part from its end.
fn walked(path: &Path) -> PathBuf {
    let above = path
        .ancestors()
        .find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match above {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(below) if !below.as_os_str().is_empty() => real.join(below),
            Ok(_) | Err(_) => real,
        },
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_real_name_is_the_one_that_no_link_leads_over() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("home/real/inner")).unwrap();
        fs::write(base.join("home/file"), "").unwrap();
        symlink("real", base.join("home/link")).unwrap();
        symlink("inner/../../link", base.join("home/real/back")).unwrap();
        symlink("missing", base.join("home/dangling")).unwrap();
        let cases = [
            ("home", "home"),
            ("home/link", "home/real"),
            ("home/link/inner", "home/real/inner"),
            ("home/link/none/deeper", "home/real/none/deeper"),
            ("home/link/back/inner", "home/real/inner"),
            ("home/dangling/below", "home/dangling/below"),
            ("home/file/below", "home/file/below"),
            ("home/link/../file", "home/file"),
            ("home/link/inner/..", "home/real"),
        ]
        .map(|(path, real)| (base.join(path), base.join(real)));
        let mut names = RealNames::default();
        for (path, real) in &cases {
            assert_eq!(names.of(path), *real, "{}", path.display());
            assert_eq!(walked(path), *real, "{}", path.display());
        }
        assert_eq!(names.of(Path::new("/")), Path::new("/"));
        assert_eq!(names.of(Path::new("nowhere/at/all")), Path::new("nowhere/at/all"));
    }
}
