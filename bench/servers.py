"""The servers that are compared, and how each is got."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SAY = "hi"
INSTALL_WITHIN_S = 300
ORDINARY_UID = 1000
MARK = ".made-by-the-benchmark"


def candidates(repository, work, cache, say):
    """Every server as (name, function): the function returns the server, or raises Missing."""
    binary = repository / "target/release/countersign"
    floor = cache / "floor"
    workspace = work / "workspace"

    def base(command, calls, **environment):
        plain = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(work / "home"), "LANG": "C.UTF-8",
                 "COUNTERSIGN_CACHE_DIR": str(work / "cache")}
        return {"command": [str(part) for part in command], "calls": calls, "expect": SAY,
                "environment": plain | environment, "directory": str(workspace)}

    argv = [("run", {"argv": ["/bin/echo", SAY]})]

    def floor_bare():
        return base([floor], argv)

    def floor_sandboxed():
        return base([floor, "--sandbox", workspace], argv)

    def countersign(name, calls, configuration=None, **environment):
        state = work / "state" / name
        command = [binary, "--state-dir", state]
        if configuration:
            file = work / f"{name}.yaml"
            file.write_text(configuration)
            command += ["--config", file]
        return base(command + ["stdio"], calls, **environment) | {"state": state}

    process = [("execute_process", {"file": "echo", "args": [SAY]})]
    line = [("execute_command", {"command": f"echo {SAY}"})]
    process_safe = ("command_policy: {allowlist: [echo]}\napproval_policy: {mode: never}\n"
                    "audit: {durability: process}\n")

    def mcp_server_commands():
        prefix = cache / "npm"
        program = prefix / "node_modules/.bin/mcp-server-commands"
        if not program.exists():
            install(say, "npm", ["npm", "install", "--prefix", prefix, "--no-audit", "--no-fund",
                                 "--loglevel=error", "mcp-server-commands"])
        calls = [("run_command", {"command": f"echo {SAY}"}),
                 ("run_process", {"mode": "shell", "command_line": f"echo {SAY}"})]
        return base([program], calls) | {"version": npm_version(prefix)}

    def mcp_shell_server():
        venv = cache / "venv"
        program = venv / "bin/mcp-shell-server"
        if not program.exists():
            install(say, sys.executable, [sys.executable, "-m", "venv", venv])
            install(say, venv / "bin/pip", [venv / "bin/pip", "install", "-q", "--disable-pip-version-check",
                                            "mcp-shell-server"])
        calls = [("shell_execute", {"command": ["echo", SAY], "directory": str(workspace)})]
        return base([program], calls, ALLOW_COMMANDS="echo") | {"version": pip_version(venv)}

    return [
        ("floor", floor_bare),
        ("floor-sandboxed", floor_sandboxed),
        ("countersign", lambda: countersign("countersign", process, ALLOWED_COMMANDS="echo")),
        ("countersign-any", lambda: countersign("countersign-any", process, ALLOWED_COMMANDS="*")),
        ("countersign-line", lambda: countersign("countersign-line", line, ALLOWED_COMMANDS="echo")),
        ("countersign-process", lambda: countersign("countersign-process", process, process_safe)),
        ("mcp-server-commands", mcp_server_commands),
        ("mcp-shell-server", mcp_shell_server),
    ]


NAMES = ["floor", "floor-sandboxed", "countersign", "countersign-any", "countersign-line",
         "countersign-process", "mcp-server-commands", "mcp-shell-server"]
PEERS = ["mcp-server-commands", "mcp-shell-server"]

MEANING = {
    "floor": "C, posix_spawn, nothing else",
    "floor-sandboxed": "C, fork, Landlock, seccomp, limits",
    "countersign": "all layers, record survives power loss, list of programs",
    "countersign-any": "the same, any program (`*`)",
    "countersign-line": "the same as countersign, a shell line (`execute_command`)",
    "countersign-process": "record survives the process, not power loss",
    "mcp-server-commands": "npm, no sandbox, no record",
    "mcp-shell-server": "PyPI, no sandbox, no record",
}


class Missing(Exception):
    """Why a server cannot be had on this machine."""


def install(say, tool, command):
    if not shutil.which(str(tool)):
        raise Missing(f"{tool} is not installed")
    say(f"installing: {' '.join(Path(str(part)).name for part in command[:1])} {command[-1]}")
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              timeout=INSTALL_WITHIN_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise Missing("the registry did not answer in time") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(lines[-1][:200] if lines else f"exit {done.returncode}")


def npm_version(prefix):
    package = prefix / "node_modules/mcp-server-commands/package.json"
    return json.loads(package.read_text())["version"]


def pip_version(venv):
    found = sorted(venv.glob("lib/python*/site-packages/mcp_shell_server-*.dist-info"))
    return found[-1].name.split("-")[1].removesuffix(".dist") if found else "?"


def make_workspace(work):
    """As root, the workspace belongs to an ordinary user: commands never run as root."""
    forget(work)
    for name in ("workspace", "home", "state"):
        (work / name).mkdir(parents=True)
    (work / MARK).touch()
    if os.getuid() == 0:
        os.chown(work / "workspace", ORDINARY_UID, ORDINARY_UID)


def forget(work):
    """Removes what an earlier run made, and nothing else."""
    if not os.path.lexists(work):
        return
    if work.is_symlink() or not (work / MARK).is_file() or work.stat().st_uid != os.getuid():
        sys.exit(f"bench: {work} was not made by this benchmark; move it away")
    shutil.rmtree(work, ignore_errors=True)


def place_for_work(asked, cache):
    """A folder on a disk that an ordinary user can reach; in the cache, unless that lies in a closed folder."""
    if asked:
        return Path(asked).resolve() / "countersign-bench"
    reachable = all(parent.stat().st_mode & 0o001 for parent in cache.parents)
    if os.getuid() == 0 and not reachable:
        return Path("/var/tmp/countersign-bench")
    return cache / "work"
