"""Drives one MCP server over stdio and measures it.

A server is measured alone: every descendant of this process belongs to it, also one that was
orphaned (this process adopts those), so CPU and memory are those of the whole tree and nothing is
left behind.
"""

import ctypes
import gc
import json
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time

ANSWER_WITHIN_S = 30
STOP_WITHIN_S = 3
PR_SET_CHILD_SUBREAPER = 36
# Of an answer to one of our calls; whatever else has such a member stands behind the first.
ANSWERED = re.compile(rb'"id": ?(\d+)')


class NotMeasured(Exception):
    """Why a server has no numbers."""


def measure(server, plan):
    """One round: some cold starts, then one process for everything else."""
    starts = []
    for _ in range(plan.cold_starts):
        with Client(server) as client:
            starts.append(client.begin())
    with Client(server) as client:
        starts.append(client.begin())
        tool, arguments = client.choose(server["calls"])
        call = {"name": tool, "arguments": arguments}
        time.sleep(plan.rest_s)
        idle = memory()

        for _ in range(plan.warm_up):
            client.checked_call(call)
        burst, _ = in_flight(client, call, plan.in_flight, plan.in_flight)
        in_flight(client, call, plan.warm_up, plan.in_flight)
        pings = [client.timed("ping", None)[0] for _ in range(plan.calls)]
        cpu_before = cpu_seconds()
        sequential, sequential_s = one_by_one(client, call, plan.calls)
        cpu_between = cpu_seconds()
        parallel, parallel_s = in_flight(client, call, plan.calls_parallel, plan.in_flight)
        cpu_after = cpu_seconds()
        after = memory()
    return {
        # The first start makes the state directory; later ones find it.
        "first_start_ms": round(starts[0] * 1e3, 2),
        "cold_start_ms": spread(starts[1:] or starts),
        "ping_ms": spread(pings),
        "call_ms": spread(sequential),
        "calls_per_s": round(plan.calls / sequential_s, 1),
        # The very first calls at once: what had to be made for them.
        "first_burst_ms": spread(burst),
        "parallel_ms": spread(parallel),
        "parallel_calls_per_s": round(plan.calls_parallel / parallel_s, 1),
        "cpu_ms_per_call": round((cpu_between - cpu_before) * 1e3 / plan.calls, 3),
        "parallel_cpu_ms_per_call": round((cpu_after - cpu_between) * 1e3 / plan.calls_parallel, 3),
        "idle": idle,
        "after": after,
    }


def one_by_one(client, call, count):
    gc.disable()
    start = time.perf_counter()
    took = [client.checked_call(call) for _ in range(count)]
    whole = time.perf_counter() - start
    gc.enable()
    return took, whole


def in_flight(client, call, count, width):
    """Keeps `width` calls unanswered until all are sent; answers may come in any order. The machine is full then, and what this
    client does is taken from the server: answers are read for their ids alone, and looked at when the time is taken."""
    gc.disable()
    sent_at, took, sent, answers = {}, [], 0, []
    start = time.perf_counter()
    while len(took) < count:
        while sent < count and len(sent_at) < width:
            at = time.perf_counter()
            sent_at[client.send("tools/call", call)] = at
            sent += 1
        answer = client.receive_line()
        found = ANSWERED.search(answer)
        at = sent_at.pop(int(found[1]), None) if found else None
        if at is None:
            raise NotMeasured("an answer to nothing that was asked")
        took.append(time.perf_counter() - at)
        answers.append(answer)
    whole = time.perf_counter() - start
    gc.enable()
    for answer in answers:
        client.check(json.loads(answer))
    return took, whole


class Client:
    """An MCP client of one server process, as small as the protocol lets it be."""

    def __init__(self, server):
        self.server = server
        self.next_id = 0
        self.buffer = b""
        self.lines = []
        self.errors = tempfile.TemporaryFile()
        if server.get("prepare"):
            server["prepare"]()
        self.started_at = time.perf_counter()
        try:
            self.process = subprocess.Popen(
                server["command"], env=server["environment"], cwd=server["directory"], bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
            )
        except OSError as error:
            raise NotMeasured(f"cannot start it: {error}") from error
        self.output = self.process.stdout.fileno()
        self.input = self.process.stdin.fileno()
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.output, selectors.EVENT_READ)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def begin(self):
        """Seconds from starting the process to the answer to `tools/list`."""
        self.result("initialize", {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "countersign-bench", "version": "1"},
        })
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed = self.result("tools/list", None)
        took = time.perf_counter() - self.started_at
        self.tools = {tool["name"] for tool in listed["tools"]}
        return took

    def choose(self, calls):
        """The first call whose tool this version of the server offers."""
        for tool, arguments in calls:
            if tool in self.tools:
                return tool, arguments
        raise NotMeasured(f"it offers none of {[tool for tool, _ in calls]}, but {sorted(self.tools)}")

    def checked_call(self, call):
        took, answer = self.timed("tools/call", call)
        self.check(answer)
        return took

    def check(self, answer):
        """Whatever is not the command's output is not a measurement of the command."""
        result = answer.get("result") or {}
        said = json.dumps(result)
        if "error" in answer or result.get("isError") or self.server["expect"] not in said:
            raise NotMeasured(f"a call failed: {json.dumps(answer)[:400]}")

    def result(self, method, params):
        _, answer = self.timed(method, params)
        if "error" in answer:
            raise NotMeasured(f"{method}: {json.dumps(answer['error'])[:400]}")
        return answer["result"]

    def timed(self, method, params):
        start = time.perf_counter()
        wanted = self.send(method, params)
        while True:
            answer = self.receive()
            if answer["id"] == wanted:
                return time.perf_counter() - start, answer

    def send(self, method, params):
        self.next_id += 1
        message = {"jsonrpc": "2.0", "id": self.next_id, "method": method}
        if params is not None:
            message["params"] = params
        self.write(message)
        return self.next_id

    def write(self, message):
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.input, data):]
        except BrokenPipeError:
            raise NotMeasured(f"it ended: {self.last_words()}") from None

    def receive(self):
        """The next answer."""
        try:
            return json.loads(self.receive_line())
        except ValueError:
            raise NotMeasured("standard output carried something that is not JSON") from None

    def receive_line(self):
        """The same as it came. What the server asks of its client is refused, what it notes is skipped."""
        while True:
            while self.lines:
                line = self.lines.pop(0)
                if b'"method"' not in line:
                    return line
                message = json.loads(line)
                if "method" not in message:
                    return line
                if "id" in message:
                    refusal = {"code": -32601, "message": "not offered"}
                    self.write({"jsonrpc": "2.0", "id": message["id"], "error": refusal})
            if not self.ready.select(ANSWER_WITHIN_S):
                raise NotMeasured(f"no answer within {ANSWER_WITHIN_S} s: {self.last_words()}")
            data = os.read(self.output, 1 << 18)
            if not data:
                raise NotMeasured(f"it ended: {self.last_words()}")
            *whole, self.buffer = (self.buffer + data).split(b"\n")
            self.lines += [line for line in whole if line.strip()]

    def last_words(self):
        self.errors.seek(0)
        return self.errors.read()[-400:].decode("utf-8", "replace").strip() or "nothing on standard error"

    def stop(self):
        self.ready.close()
        self.process.stdin.close()
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        end_descendants()


def spread(seconds):
    """Nearest-rank percentiles in milliseconds."""
    ordered = sorted(seconds)
    def at(percent):
        return round(ordered[max(0, -(-percent * len(ordered) // 100) - 1)] * 1e3, 3)
    return {"p50": at(50), "p90": at(90), "p99": at(99), "min": at(0), "max": at(100), "count": len(ordered)}


# ---- the process tree ----

def adopt_orphans():
    """A process whose parent ended becomes a child of this one, not of the system's."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], list(children.get(os.getpid(), []))
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def stat_fields(pid):
    """What follows the name in /proc/PID/stat: state, parent, ..."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(")") + 2:].split()


def cpu_seconds():
    """User and system time of the tree, with that of children already waited for."""
    ticks = 0
    for pid in descendants():
        if fields := stat_fields(pid):
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory():
    """RSS counts a page once per process that maps it, PSS once; PSS is null where it may not be read."""
    rss_kb, pss_kb, processes = 0, 0, 0
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
                rss = [int(line.split()[1]) for line in file if line.startswith("VmRSS:")]
        except OSError:
            continue
        if not rss:
            continue
        processes += 1
        rss_kb += rss[0]
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
                pss = sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            pss_kb = None if pss_kb is None else pss_kb + pss
        except OSError:
            pss_kb = None
    return {"rss_kb": rss_kb, "pss_kb": pss_kb, "processes": processes}


def end_descendants():
    """A moment to go by itself, then the end. Returns how many had to be ended."""
    deadline, ended = time.monotonic() + 1, set()
    while True:
        reap()
        left = descendants()
        if not left:
            return len(ended)
        if time.monotonic() > deadline:
            for pid in left:
                ended.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.005)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
