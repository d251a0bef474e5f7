"""What `serve` holds in memory, waiting."""

import http.client
import subprocess
import tempfile
import time

import driver

START_WITHIN_S = 10


def measure(repository, work, plan):
    log = tempfile.TemporaryFile()
    command = [str(repository / "target/release/countersign"), "--state-dir", str(work / "state/serve"), "serve",
               "--listen", "127.0.0.1:0"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(work / "home")}
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd=work / "workspace", stdin=subprocess.DEVNULL,
                               stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        host, port = address(process, log)
        start_ms = wait_until_healthy(host, port, started)
        time.sleep(plan.rest_s)
        return {"start_ms": start_ms, "idle": driver.memory()}
    finally:
        process.terminate()
        try:
            process.wait(driver.STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
        driver.end_descendants()


def address(process, log):
    """The server says where it listens: `http://127.0.0.1:PORT/`."""
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        said = log.read().decode("utf-8", "replace")
        if "http://" in said and "\n" in said.split("http://", 1)[1]:
            place = said.split("http://", 1)[1].split()[0].split("/")[0]
            host, _, port = place.rpartition(":")
            return host, int(port)
        time.sleep(0.002)
    log.seek(0)
    raise driver.NotMeasured("it did not say where it listens: " + log.read()[-300:].decode("utf-8", "replace"))


def wait_until_healthy(host, port, started):
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection(host, port, timeout=2)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return round((time.perf_counter() - started) * 1e3, 1)
        except OSError:
            time.sleep(0.005)
    raise driver.NotMeasured("/healthz did not answer")
