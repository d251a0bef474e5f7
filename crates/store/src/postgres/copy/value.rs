//! Values on their way from one database to the other, and a sum over them by which both sides are compared.

use rusqlite::types::ValueRef;
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::ToSql;

use crate::postgres::trouble::Trouble;

/// What a column of the database holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Text,
    Integer,
    Bytes,
    Boolean,
    Double,
}

impl Kind {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "text" => Self::Text,
            "bigint" => Self::Integer,
            "bytea" => Self::Bytes,
            "boolean" => Self::Boolean,
            "double precision" => Self::Double,
            _ => return None,
        })
    }

    /// A list of these, in SQL.
    pub(super) fn list(self) -> &'static str {
        match self {
            Self::Text => "text[]",
            Self::Integer => "bigint[]",
            Self::Bytes => "bytea[]",
            Self::Boolean => "boolean[]",
            Self::Double => "double precision[]",
        }
    }
}

/// One column of several rows, as the database takes them.
pub(super) enum Values {
    Text(Vec<Option<String>>),
    Integer(Vec<Option<i64>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Boolean(Vec<Option<bool>>),
    Double(Vec<Option<f64>>),
}

impl Values {
    pub(super) fn none_of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Vec::new()),
            Kind::Integer => Self::Integer(Vec::new()),
            Kind::Bytes => Self::Bytes(Vec::new()),
            Kind::Boolean => Self::Boolean(Vec::new()),
            Kind::Double => Self::Double(Vec::new()),
        }
    }

    pub(super) fn as_list(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Text(values) => values,
            Self::Integer(values) => values,
            Self::Bytes(values) => values,
            Self::Boolean(values) => values,
            Self::Double(values) => values,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Text(values) => values.clear(),
            Self::Integer(values) => values.clear(),
            Self::Bytes(values) => values.clear(),
            Self::Boolean(values) => values.clear(),
            Self::Double(values) => values.clear(),
        }
    }

    /// Takes a value of the file, with something before it if it is text; gives its size, or what it should have been.
    pub(super) fn push(&mut self, value: ValueRef<'_>, before: &str, sum: &mut RowSum) -> Result<usize, &'static str> {
        if matches!(value, ValueRef::Null) {
            sum.add(None);
            match self {
                Self::Text(values) => values.push(None),
                Self::Integer(values) => values.push(None),
                Self::Bytes(values) => values.push(None),
                Self::Boolean(values) => values.push(None),
                Self::Double(values) => values.push(None),
            }
            return Ok(0);
        }
        match (self, value) {
            (Self::Text(values), ValueRef::Text(bytes)) => {
                let text = std::str::from_utf8(bytes).map_err(|_| "text in UTF-8")?;
                if text.contains('\0') {
                    return Err("text without a NUL");
                }
                let text = format!("{before}{text}");
                sum.add(Some(text.as_bytes()));
                let size = text.len();
                values.push(Some(text));
                Ok(size)
            }
            (Self::Integer(values), ValueRef::Integer(number)) => {
                sum.add(Some(&number.to_be_bytes()));
                values.push(Some(number));
                Ok(8)
            }
            (Self::Bytes(values), ValueRef::Blob(bytes)) => {
                sum.add(Some(bytes));
                values.push(Some(bytes.to_vec()));
                Ok(bytes.len())
            }
            (Self::Boolean(values), ValueRef::Integer(number @ (0 | 1))) => {
                sum.add(Some(&[u8::from(number == 1)]));
                values.push(Some(number == 1));
                Ok(1)
            }
            (Self::Double(values), ValueRef::Real(number)) => {
                sum.add(Some(&number.to_be_bytes()));
                values.push(Some(number));
                Ok(8)
            }
            (Self::Text(_), _) => Err("text"),
            (Self::Integer(_), _) => Err("a whole number"),
            (Self::Bytes(_), _) => Err("bytes"),
            (Self::Boolean(_), _) => Err("0 or 1"),
            (Self::Double(_), _) => Err("a number"),
        }
    }
}

/// A digest over the values of one row.
#[derive(Default)]
pub(super) struct RowSum(Sha256);

impl RowSum {
    pub(super) fn add(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.0.update([0]),
            Some(bytes) => {
                self.0.update([1]);
                self.0.update((bytes.len() as u64).to_be_bytes());
                self.0.update(bytes);
            }
        }
    }

    /// Adds a value that the database gave back.
    pub(super) fn add_column(&mut self, row: &tokio_postgres::Row, column: usize, kind: Kind) -> Result<(), Trouble> {
        match kind {
            Kind::Text => self.add(row.try_get::<_, Option<&str>>(column)?.map(str::as_bytes)),
            Kind::Bytes => self.add(row.try_get::<_, Option<&[u8]>>(column)?),
            Kind::Integer => {
                let value = row.try_get::<_, Option<i64>>(column)?.map(i64::to_be_bytes);
                self.add(value.as_ref().map(<[u8; 8]>::as_slice));
            }
            Kind::Boolean => {
                let value = row.try_get::<_, Option<bool>>(column)?.map(|it| [u8::from(it)]);
                self.add(value.as_ref().map(<[u8; 1]>::as_slice));
            }
            Kind::Double => {
                let value = row.try_get::<_, Option<f64>>(column)?.map(f64::to_be_bytes);
                self.add(value.as_ref().map(<[u8; 8]>::as_slice));
            }
        }
        Ok(())
    }
}

/// What two tables with the same rows have in common, in whatever order they are read.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct TableSum {
    pub(super) rows: u64,
    digests: [u64; 4],
}

impl TableSum {
    pub(super) fn add(&mut self, row: RowSum) {
        self.rows += 1;
        let digest = row.0.finalize();
        for (sum, part) in self.digests.iter_mut().zip(digest.chunks_exact(8)) {
            let part = part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            *sum = sum.wrapping_add(part);
        }
    }
}
