"""What the node exporter costs: 8 writing ranks, each with 10 phases and 6 collectives, scraped over HTTP.

Prints one JSON object.  ``wall`` is the best of N scrapes on a kept connection,
as Prometheus makes them (gzip); CPU time is the exporter's own, from
``/proc``, the mean over all N.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from argus import _native

RANKS = 8
PHASES = 10
COLLECTIVES = 6
SCRAPES = 60
IDLE_S = 20.0
INTERVAL_S = 15.0
FORMATS = {
    "text": "text/plain;version=0.0.4",
    "openmetrics": "application/openmetrics-text;version=1.0.0",
    "protobuf": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}


def write(directory: Path, rank: int) -> None:
    """One rank: an iteration each 0.1 s until standard input closes."""
    generator = random.Random(rank)
    segment = _native.Segment(
        str(directory / f"bench.{rank}.{os.getpid():08x}.seg"),
        run_id="bench", rank=rank, node="node-0001", local_rank=rank, world_size=RANKS,
        dp=rank, tp=0, pp=0, cp=0, ep=0, gpu_uuid=f"GPU-{rank:08x}-0000-0000-0000-000000000000",
        pci_bus_id=f"0000:{rank:02x}:00.0",
    )  # fmt: skip
    kinds = ("compute", "host", "communication", "mixed")
    phases = [segment.phase(f"phase_{number}", kinds[number % 4]) for number in range(PHASES)]
    collectives = [
        segment.collective(op, group, f"{group}-0", members=RANKS, nodes=1)
        for op in ("all_reduce", "all_gather", "reduce_scatter")
        for group in ("dp", "tp")
    ][:COLLECTIVES]
    number = 0

    def iterate() -> None:
        nonlocal number
        for phase in phases:
            segment.observe_phase(phase, round(generator.lognormvariate(16, 0.5)))
        for collective in collectives:
            for _ in range(3):
                segment.observe_collective(collective, round(generator.lognormvariate(14, 0.5)), 1 << 20)
        segment.end_iteration(number, _native.monotonic_ns(), round(generator.gauss(1e8, 1e6)))
        number += 1

    for _ in range(500):
        iterate()
    print("ready", flush=True)
    os.set_blocking(0, False)
    while True:
        time.sleep(0.1)
        iterate()
        try:
            if not os.read(0, 1):
                return
        except BlockingIOError:
            pass


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> tuple[int, int]:
    """Memory now and at its peak."""
    status = Path(f"/proc/{pid}/status").read_text()
    now, peak = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmRSS", "VmHWM"))
    assert now is not None
    assert peak is not None
    return int(now[1]) * 1024, int(peak[1]) * 1024


def scrape(connection: http.client.HTTPConnection, accept: str) -> tuple[float, bytes]:
    """Wall time, and the body as it came over the wire."""
    began = time.perf_counter()
    connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
    response = connection.getresponse()
    body = response.read()
    took = time.perf_counter() - began
    assert response.status == 200
    return took, body


def measure(port: int, pid: int) -> dict[str, object]:
    """All figures of a running exporter."""
    result: dict[str, object] = {"ranks": RANKS, "phases": PHASES, "collectives": COLLECTIVES}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    dearest = 0.0
    for name, accept in FORMATS.items():
        scrape(connection, accept)
        before = cpu_seconds(pid)
        scrapes = [scrape(connection, accept) for _ in range(SCRAPES)]
        cpu = (cpu_seconds(pid) - before) / SCRAPES
        dearest = max(dearest, cpu)
        walls = [wall for wall, _ in scrapes]
        result[name] = {
            "scrape_wall_seconds_best": round(min(walls), 5),
            "scrape_wall_seconds_median": round(statistics.median(walls), 5),
            "scrape_cpu_seconds": round(cpu, 5),
            "bytes_per_rank_compressed": round(len(scrapes[-1][1]) / RANKS),
            "bytes_per_rank": round(len(gzip.decompress(scrapes[-1][1])) / RANKS),
        }
    page = gzip.decompress(scrape(connection, FORMATS["text"])[1]).decode()
    ranked = [line for line in page.splitlines() if 'rank="' in line]
    histograms = [line for line in ranked if re.match(r"argus_(iteration|phase|collective)_seconds_", line)]
    result["series_per_rank"] = round(len(ranked) / RANKS)
    natively = len([line for line in histograms if "_count{" in line])
    result["series_per_rank_natively"] = round((len(ranked) - len(histograms) + natively) / RANKS)
    connection.close()
    before = cpu_seconds(pid)
    time.sleep(IDLE_S)
    idle = (cpu_seconds(pid) - before) / IDLE_S
    result["cpu_cores_between_scrapes"] = round(idle, 5)
    result["cpu_cores_at_15_s_scrapes"] = round(idle + dearest / INTERVAL_S, 5)
    result["resident_bytes"], result["resident_bytes_peak"] = resident_bytes(pid)
    return result


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as base:
        directory = Path(base) / f"argus-{os.getuid()}"
        directory.mkdir(mode=0o750)
        writers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.bench_exporter", "write", str(directory), str(rank)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for rank in range(RANKS)
        ]  # fmt: skip
        exporter = None
        try:
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"ready\n"
            exporter = subprocess.Popen(
                [sys.executable, "-m", "argus.cli", "exporter", "--segments.directory", base,
                 "--web.listen-address", "127.0.0.1:0"],
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert exporter.stderr is not None
            listening = next(
                filter(None, (re.search(r"listening on .*:(\d+)/", line) for line in exporter.stderr))
            )
            print(json.dumps(measure(int(listening[1]), exporter.pid), indent=2))
        finally:
            for process in [*writers, *([exporter] if exporter else [])]:
                process.kill()
                process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
