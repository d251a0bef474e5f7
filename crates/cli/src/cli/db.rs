//! What can be typed to look after the database.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub(crate) enum Db {
    /// Tell how the database is: version, size, rows, chains, and the nodes with their last sign of life.
    #[command(after_help = "Changes nothing, and also answers for a database of another version.")]
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Bring the database to the version of this program.
    #[command(
        after_help = "Servers do the same when they start, and wait for each other; by itself it may take as long as \
                            it needs. A server refuses a database that is newer than itself."
    )]
    Migrate {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a copy of the record's file to keep elsewhere, while servers go on.
    #[command(
        after_help = "The copy is a whole record of this moment; with `record-key` beside it, it verifies and can be gone on \
                            with. A database is backed up by its own tools.\n\n\
                            Example:\n  countersign db backup --output /backup/record.db"
    )]
    Backup {
        /// A file that does not exist yet.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Move the record from the file in the state directory into an empty PostgreSQL database.
    #[command(
        after_help = "Everything goes in one transaction and is compared and proved: a copy that is interrupted leaves \
                            nothing and can be begun again. No server may use the file meanwhile. Afterwards the state \
                            directory is a node of the database, its chain goes on there, and the file is kept but no \
                            longer used.\n\n\
                            Example:\n  countersign db copy --to postgres://countersign@db.internal/countersign"
    )]
    Copy {
        /// The empty database; else the one that `--database` or COUNTERSIGN_DATABASE names.
        #[arg(long, value_name = "URL")]
        to: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}
