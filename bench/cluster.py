"""A PostgreSQL for the benchmark: a cluster in a folder of its own, which goes with it."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import driver

USER = "countersign"
START_WITHIN_S = 60
# As much as a small server has; everything that makes a commit durable is on.
SETTINGS = {"shared_buffers": "256MB", "max_connections": "200", "max_wal_size": "1GB", "maintenance_work_mem": "256MB",
            "fsync": "on", "synchronous_commit": "on", "listen_addresses": ""}


def programs(repository):
    linked = repository / ".cache/postgres/bin"
    places = [linked] + sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists():
            return place
    raise driver.NotMeasured("PostgreSQL is not installed; run tests/postgres/setup")


class Cluster:
    def __init__(self, home, directory):
        self.home, self.directory, self.number = home, directory, 0

    def url(self, name):
        place = str(self.directory).replace("/", "%2F")
        return f"postgres://{USER}@{place}/{name}"

    def database(self):
        """A new, empty one."""
        self.number += 1
        name = f"bench_{self.number}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return name

    def sql(self, name, statements):
        """The answer of the last statement, as text."""
        done = subprocess.run([str(self.home / "psql"), "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-h", str(self.directory),
                               "-U", USER, "-d", name, "-f", "-"], input=statements, capture_output=True, text=True, check=False)
        if done.returncode:
            raise driver.NotMeasured(done.stderr.strip()[-300:])
        return done.stdout.strip()

    def drop(self, name):
        self.sql("postgres", f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running(repository, work):
    """A cluster on a socket, as an ordinary user: the server refuses to run as root."""
    home = programs(repository)
    directory = work / "postgres"
    directory.mkdir()
    before = []
    if os.getuid() == 0:
        user = next((name for name in ("postgres", "nobody") if known(name)), "nobody")
        entry = pwd.getpwnam(user)
        os.chown(directory, entry.pw_uid, entry.pw_gid)
        before = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]
    made = subprocess.run([*before, str(home / "initdb"), "--encoding=UTF8", "--locale=C", "--auth=trust", "--no-instructions", "-U", USER,
                           "-D", str(directory / "data")], capture_output=True, text=True, check=False, cwd="/")
    if made.returncode:
        raise driver.NotMeasured(made.stderr.strip()[-300:])
    given = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    with open(work / "postgres.log", "wb") as log:
        server = subprocess.Popen([*before, str(home / "postgres"), "-D", str(directory / "data"), "-k", str(directory), *given],
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True)
    try:
        cluster = Cluster(home, directory)
        wait(cluster, server, work / "postgres.log")
        yield cluster
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(directory, ignore_errors=True)


def known(name):
    try:
        pwd.getpwnam(name)
        return True
    except KeyError:
        return False


def wait(cluster, server, log):
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(cluster.directory / ".s.PGSQL.5432"))
                cluster.sql("postgres", "SELECT 1")
                return
            except (OSError, driver.NotMeasured):
                time.sleep(0.05)
    raise driver.NotMeasured("PostgreSQL did not start: " + log.read_text(errors="replace")[-300:])
