"""The record's own numbers: the store's benchmark, and what the same disk gives without a store."""

import json
import os
import sqlite3
import subprocess
import time

ROW_BYTES = 700
SLOT_S = 1.5
BATCH = 500


class RecordFailed(Exception):
    pass


def measure(repository, directory, rows):
    program = repository / "target/release/examples/record_bench"
    sizes = "--rows=" + ",".join(str(size) for size in rows)
    return {
        "power": run([program, "--json", sizes, directory]),
        "process": run([program, "--json", "--process", sizes, directory]),
        "bare": bare(directory),
    }


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RecordFailed(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def bare(directory):
    """No chain, no signature, no index: a plain table, and below that a plain file."""
    return {
        "flush_per_s": flushes(directory / "flush"),
        "insert_per_s": inserts(directory / "bare.db", 1),
        "insert_batched_rows_per_s": inserts(directory / "bare.db", BATCH),
        "batch": BATCH,
    }


def flushes(path):
    """A page written in place and flushed, over and over: the least a power-safe row can cost."""
    page = os.urandom(4096)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, page * 256, 0)
        os.fsync(file)
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < SLOT_S:
            os.pwrite(file, page, (count % 256) * 4096)
            os.fdatasync(file)
            count += 1
        return round(count / (time.perf_counter() - start))
    finally:
        os.close(file)
        path.unlink()


def inserts(path, batch):
    """Rows per second into SQLite with a write-ahead log that is flushed at every commit."""
    forget(path)
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE event (number INTEGER PRIMARY KEY, payload TEXT NOT NULL)")
        rows = [("x" * ROW_BYTES,)] * batch
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < SLOT_S:
            database.execute("BEGIN")
            database.executemany("INSERT INTO event (payload) VALUES (?)", rows)
            database.execute("COMMIT")
            count += batch
        return round(count / (time.perf_counter() - start))
    finally:
        database.close()
        forget(path)


def forget(path):
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
