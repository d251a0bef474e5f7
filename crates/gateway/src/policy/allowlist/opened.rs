//! A program that its finder keeps open. Policy carries it along without looking inside.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// An opened file of the finder's own kind; none where nothing will run.
#[derive(Clone, Default)]
pub struct Opened(Option<Arc<dyn Any + Send + Sync>>);

impl Opened {
    pub fn new<T: Any + Send + Sync>(file: Arc<T>) -> Self {
        Self(Some(file))
    }

    /// The file, if it is of this kind.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }

    /// Whether both are the very same opening of a file.
    pub fn same(one: &Self, other: &Self) -> bool {
        match (&one.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Opened" } else { "NotOpened" })
    }
}

/// Two findings of the same program are equal whether or not somebody holds it open.
impl PartialEq for Opened {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Opened {}
