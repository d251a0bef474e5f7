//! What is mounted, as far as hiding goes: by which names a place can be reached, and whether that has changed.
//!
//! A file system can be mounted a second time, as a whole or in part. Whoever hides a place by its path alone shows it
//! under the other name. The table of mounts tells all of them; the kernel tells when it has changed, so that a call
//! pays for one look and not for reading it.

pub(crate) mod table;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::sockets;
use table::Table;

/// The mounts of the namespace that this process is in.
pub(crate) const TABLE: &str = "/proc/self/mountinfo";
/// Lists of places whose names are remembered; beyond this many it starts afresh.
const LISTS_MAX: usize = 16;

/// The mounts where this process is, as they are now.
#[derive(Debug)]
pub struct Mounted(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// Kept open: it is what the kernel tells changes by, and it can be read when no more files can be opened.
    source: Option<File>,
    generation: u64,
    /// None when it has to be read anew.
    table: Option<Table>,
    /// Of lists of places, their names in this table.
    names: Vec<Named>,
}

#[derive(Debug)]
struct Named {
    places: Arc<[PathBuf]>,
    names: Arc<[PathBuf]>,
}

impl Mounted {
    /// From now on.
    pub fn watch() -> Self {
        Self(Mutex::new(Known {
            source: File::open(TABLE).ok(),
            generation: 0,
            table: None,
            names: Vec::new(),
        }))
    }

    /// Counts the changes that were noticed, this one included.
    pub fn generation(&self) -> u64 {
        self.known().look()
    }

    /// The same after the whole table was read: directories above a mount may have been renamed, of which the kernel
    /// tells nothing.
    pub fn read_anew(&self) -> io::Result<u64> {
        let mut known = self.known();
        known.look();
        let table = known.read()?;
        if known.table.as_ref().is_some_and(|before| *before != table) {
            known.forget();
        }
        known.table = Some(table);
        Ok(known.generation)
    }

    /// These places, by their own names and by every other that leads to them or into them.
    pub fn names(&self, places: &Arc<[PathBuf]>) -> io::Result<Arc<[PathBuf]>> {
        let mut known = self.known();
        known.look();
        if let Some(named) = known.names.iter().find(|named| Arc::ptr_eq(&named.places, places)) {
            return Ok(named.names.clone());
        }
        let table = match known.table.take() {
            Some(table) => table,
            None => known.read()?,
        };
        let names: Arc<[PathBuf]> = table.names(places).into();
        known.table = Some(table);
        if known.names.len() >= LISTS_MAX {
            known.names.clear();
        }
        known.names.push(Named {
            places: places.clone(),
            names: names.clone(),
        });
        Ok(names)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Forgets everything when the kernel says that it has changed.
    fn look(&mut self) -> u64 {
        // Raised once for every descriptor of the table, until it was polled.
        let is_raised = |table: &File| sockets::is_raised(table.as_fd(), libc::POLLPRI);
        if self.source.as_ref().is_some_and(is_raised) {
            self.forget();
        }
        self.generation
    }

    fn forget(&mut self) {
        self.generation += 1;
        self.table = None;
        self.names.clear();
    }

    /// Polled before, so that what changes while it is read is noticed the next time.
    fn read(&mut self) -> io::Result<Table> {
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(File::open(TABLE)?),
        };
        let mut text = Vec::new();
        source.rewind()?;
        source.read_to_end(&mut text)?;
        Ok(Table::parse(&text))
    }
}

/// The same for somebody who asks once.
pub(crate) fn names_now(places: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    Ok(Table::now()?.names(places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_remembered_until_the_table_changes() {
        let mounted = Mounted::watch();
        let places: Arc<[PathBuf]> = Arc::new([PathBuf::from("/nowhere/at/all")]);
        let names = mounted.names(&places).unwrap();
        assert!(names.contains(&places[0]));
        let generation = mounted.generation();
        assert!(Arc::ptr_eq(&names, &mounted.names(&places).unwrap()) || mounted.generation() != generation);
        // As where a directory above a mount was renamed.
        mounted.known().table = Some(Table::parse(b""));
        assert!(mounted.read_anew().unwrap() > generation);
        assert!(!Arc::ptr_eq(&names, &mounted.names(&places).unwrap()));
    }
}
