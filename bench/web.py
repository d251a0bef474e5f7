"""`serve`: what it holds in memory, waiting; and `tools/list` over HTTP beside a bare axum echo."""

import http.client
import json
import subprocess
import tempfile
import time
from contextlib import contextmanager
from statistics import median

import driver

START_WITHIN_S = 10
CONNECTIONS = 8
SESSIONS = 10_000
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "countersign-bench", "version": "1"}}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = '{"jsonrpc":"2.0","id":@@@@@@@@@@,"method":"tools/list"}'


def measure(repository, work, cache, plan):
    built = repository / "target/release"
    command = [built / "countersign", "--state-dir", work / "state/serve", "serve", "--listen", "127.0.0.1:0"]
    requests = plan.calls * 20
    with started(command, work) as (port, since):
        found = {"start_ms": wait_until_healthy(port, since)}
        time.sleep(plan.rest_s)
        found["idle"] = driver.memory()
        session = open_session(port)
        if session is None:
            return found | {"list_not_measured": "this build does not speak MCP over HTTP"}
        mine, theirs = [], []
        with started([built / "examples/axum_echo"], work) as (echo_port, _):
            for _ in range(plan.rounds):
                mine.append(load(cache, port, request(LIST, session), requests))
                theirs.append(load(cache, echo_port, request(LIST, {}), requests))
        found["list"], found["echo"] = middle(mine), middle(theirs)
        found["list_ratio"] = median(one["per_s"] / other["per_s"] for one, other in zip(mine, theirs))
        load(cache, port, request(json.dumps(INITIALIZE), {}), SESSIONS)
        after = middle([load(cache, port, request(LIST, session), requests) for _ in range(plan.rounds)])
        found["list_with_sessions"], found["sessions"] = after, SESSIONS
        found["session_ratio"] = after["p50_ms"] / found["list"]["p50_ms"]
        return found


@contextmanager
def started(command, work):
    """A server that says where it listens, as (port, when it was started)."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(work / "home")}
    with tempfile.TemporaryFile() as log:
        since = time.perf_counter()
        try:
            process = subprocess.Popen([str(part) for part in command], env=environment, cwd=work / "workspace",
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise driver.NotMeasured(f"cannot start it: {error}") from error
        try:
            yield port_said(process, log), since
        finally:
            process.terminate()
            try:
                process.wait(driver.STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def port_said(process, log):
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        _, found, rest = log.read().decode("utf-8", "replace").partition("http://")
        if found and "\n" in rest:
            return int(rest.split()[0].split("/")[0].rpartition(":")[2])
        time.sleep(0.002)
    log.seek(0)
    raise driver.NotMeasured("it did not say where it listens: " + log.read()[-300:].decode("utf-8", "replace"))


def wait_until_healthy(port, since):
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        try:
            status, _ = exchange(port, "GET", "/healthz", None, {})
            if status == 200:
                return round((time.perf_counter() - since) * 1e3, 1)
        except OSError:
            time.sleep(0.005)
    raise driver.NotMeasured("/healthz did not answer")


def open_session(port):
    """Headers of an initialized session, or nothing when `/mcp` is not served."""
    status, headers = exchange(port, "POST", "/mcp", json.dumps(INITIALIZE), HEADERS)
    if status != 200:
        return None
    session = {"MCP-Protocol-Version": "2025-06-18"}
    if headers.get("mcp-session-id"):
        session["Mcp-Session-Id"] = headers["mcp-session-id"]
    exchange(port, "POST", "/mcp", json.dumps(INITIALIZED), HEADERS | session)
    return session


def exchange(port, method, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def request(body, extra):
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1"] + [f"{name}: {value}" for name, value in (HEADERS | extra).items()]
    return "\r\n".join(lines + [f"Content-Length: {len(body)}", "", body])


def load(cache, port, template, requests):
    done = subprocess.run([str(cache / "load"), str(port), str(CONNECTIONS), str(requests)], input=template,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise driver.NotMeasured(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def middle(runs):
    return {name: round(median(run[name] for run in runs), 4) for name in runs[0]}
