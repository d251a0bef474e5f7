"""`serve`: what it holds in memory, and MCP over HTTP beside a bare axum echo and the Rust SDK's server."""

import http.client
import json
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from statistics import median

import driver

START_WITHIN_S = 10
CONNECTIONS = 8
SESSIONS = [1, 1_000, 10_000]
LEAK_SPELLS = 5
SETTLED_AFTER_S = 12
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "countersign-bench", "version": "1"}}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = '{"jsonrpc":"2.0","id":@@@@@@@@@@,"method":"tools/list"}'
CALL = ('{"jsonrpc":"2.0","id":@@@@@@@@@@,"method":"tools/call",'
        '"params":{"name":"execute_process","arguments":{"file":"true","args":[]}}}')
SDK_CALL = '{"jsonrpc":"2.0","id":@@@@@@@@@@,"method":"tools/call","params":{"name":"run","arguments":{}}}'


def measure(repository, work, cache, plan):
    built = repository / "target/release"
    with serving(built, work, "serve") as (port, since, process):
        found = {"start_ms": wait_until_healthy(port, since)}
        time.sleep(plan.rest_s)
        found["idle"] = driver.memory()
        session = open_session(port)
        if session is None:
            return found | {"list_not_measured": "this build does not speak MCP over HTTP"}
        found |= side_by_side(built, work, cache, plan, port, session)
        with serving(built, work, "beside") as (other, since, _):
            wait_until_healthy(other, since)
            found["growth"] = growing(cache, plan, (port, session, process), (other, open_session(other)))
        found["leak"] = leaking(cache, plan, port, session, process)
        return found


def serving(built, work, name):
    command = [built / "countersign", "--state-dir", work / "state" / name, "serve", "--listen", "127.0.0.1:0"]
    return started(command, work, {"ALLOWED_COMMANDS": "true"})


def side_by_side(built, work, cache, plan, port, session):
    """The same requests to this server, to an axum handler that says them back, and to the Rust SDK's server."""
    many, some = plan.calls * 20, plan.calls
    runs = {}
    as_long = as_long_as_the_list(port, session)
    def take(name, *arguments):
        runs.setdefault(name, []).append(load(cache, *arguments))
    with started([built / "examples/axum_echo"], work) as (echo, _, _), hello(cache, work) as sdk:
        theirs = open_session(sdk) if sdk else None
        for _ in range(plan.rounds):
            take("list", port, request(LIST, session), many)
            take("echo", echo, request(LIST, {}), many)
            take("echo as long", echo, request(as_long, {}), many)
            take("call", port, request(CALL, session), some)
            take("call alone", port, request(CALL, session), some, 1)
            if theirs:
                take("sdk list", sdk, request(LIST, theirs), many)
                take("sdk call", sdk, request(SDK_CALL, theirs), some)
                take("sdk call alone", sdk, request(SDK_CALL, theirs), some, 1)
    found = {"side": {name: middle(rounds) for name, rounds in runs.items()}}
    for name, yardstick in (("list_ratio", "echo"), ("list_as_long_ratio", "echo as long")):
        found[name] = median(one["per_s"] / other["per_s"] for one, other in zip(runs["list"], runs[yardstick]))
    return found


def as_long_as_the_list(port, session):
    """A message that the echo answers with as many bytes as the list has."""
    asked = json.loads(LIST.replace("@" * 10, "1"))
    length = len(answer(port, json.dumps(asked), HEADERS | session))
    return LIST.replace('"method"', '"said":"%s","method"' % ("x" * (length - len(LIST) - len('"said":"",'))))


@contextmanager
def hello(cache, work):
    """The port of the SDK's server, or nothing where it could not be built."""
    binary = cache / "hello/release/hello"
    if not binary.exists():
        yield None
        return
    with started([binary], work) as (port, _, _):
        yield port


def growing(cache, plan, served, beside):
    """What a request costs as idle sessions grow, beside a server that has one: a machine's mood lasts longer
    than a measurement, so the two take turns and ratios are taken turn by turn."""
    found = []
    port, session, process = served
    sessions = 1
    for wanted in SESSIONS:
        if wanted > sessions:
            load(cache, port, request(json.dumps(INITIALIZE).replace('"id": 1', '"id": @@@@@@@@@@'), {}), wanted - sessions)
            sessions = wanted
            # That they were used is written down within a few seconds; idle sessions have no such news.
            time.sleep(SETTLED_AFTER_S)
        step = {"sessions": sessions, "rss_kb": held(process.pid)["rss_kb"]}
        for name, body, requests, connections in (("list", LIST, plan.calls * 10, CONNECTIONS), ("call", CALL, plan.calls, 1)):
            turns = [[load(cache, where, request(body, who), requests, connections) for where, who in ((port, session), beside)]
                     for _ in range(plan.rounds)]
            step[name] = middle([many for many, _ in turns])
            step[f"{name}_ratio"] = round(median(many["p50_ms"] / one["p50_ms"] for many, one in turns), 3)
        found.append(step)
    return found


def leaking(cache, plan, port, session, process):
    """What the server holds after each of several equal spells of calls; the first is left out as warm-up."""
    spells = []
    for _ in range(LEAK_SPELLS):
        load(cache, port, request(CALL, session), plan.leak_calls // LEAK_SPELLS)
        load(cache, port, request(LIST, session), plan.leak_calls)
        spells.append(held(process.pid))
    return {"calls": plan.leak_calls, "requests": plan.leak_calls * LEAK_SPELLS, "spells": spells}


def held(pid):
    """Memory, descriptors, threads and processes of a server."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    return {"rss_kb": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "processes": len(driver.descendants())}


@contextmanager
def started(command, work, extra=None):
    """A server that says where it listens, as (port, when it was started, its process)."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(work / "home")} | (extra or {})
    with tempfile.TemporaryFile() as log:
        since = time.perf_counter()
        try:
            process = subprocess.Popen([str(part) for part in command], env=environment, cwd=work / "workspace",
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise driver.NotMeasured(f"cannot start it: {error}") from error
        try:
            yield port_said(process, log), since, process
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


def answer(port, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/mcp", body, headers)
        return connection.getresponse().read()
    finally:
        connection.close()


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


def load(cache, port, template, requests, connections=CONNECTIONS):
    done = subprocess.run([str(cache / "load"), str(port), str(connections), str(requests)], input=template,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise driver.NotMeasured(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def middle(runs):
    return {name: round(median(run[name] for run in runs), 4) for name in runs[0]}
