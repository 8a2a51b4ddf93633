"""The recorded Kineto pair, delivered by the stand-in as CUPTI would: late, interleaved, by several threads.

Phases are the job's own top-level annotations and those nested in them.  What is expected is computed here
from the trace alone: a kernel belongs to the innermost annotation of the main thread that was open when it
was launched, whichever thread did that.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from argus import _native
from kernels_support import ROOT, build, run

CASES = ROOT.parent / "shared" / "cases" / "kineto"
US = 1000
OUTSIDE = 33
KINDS = {"## data_load ##": 1}  # host; the others compute
NUMBERS = {"kernel": 10, "gpu_memcpy": 1, "gpu_memset": 2}


@pytest.fixture(scope="module", params=[0, 1])
def trace(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    path = CASES / f"rank-{request.param}.json.gz"
    if not path.exists():
        pytest.skip(f"the real trace {path.name} is not here")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


class Job:
    """The trace's boundaries and launches, in microseconds from the first step's begin."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
        self.begin = min(e["ts"] for e in steps)
        self.ends = sorted(e["ts"] + e["dur"] - self.begin for e in steps)
        main = steps[0]["tid"]
        marked = [e for e in events if e.get("cat") == "user_annotation" and e["tid"] == main]
        self.spans = sorted(
            ((e["ts"] - self.begin, e["ts"] + e["dur"] - self.begin, e["name"])
             for e in marked if e["name"].startswith("## ")),
            key=lambda span: (span[0], -span[1]),
        )  # fmt: skip
        self.names = sorted({name for _, _, name in self.spans})
        calls = {
            e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")
        }
        self.launches = sorted(
            ((calls[e["args"]["correlation"]]["ts"] - self.begin, calls[e["args"]["correlation"]]["tid"], e)
             for e in events if e.get("cat") in NUMBERS),
            key=lambda launch: (launch[0], launch[2]["args"]["correlation"]),
        )  # fmt: skip

    def phase_at(self, moment: float) -> int:
        open_spans = [span for span in self.spans if span[0] <= moment < span[1]]
        return self.names.index(open_spans[-1][2]) if open_spans else OUTSIDE

    def plan(self) -> str:
        """The driver's file: see replay() in tests/standin/records.cpp."""
        # At one moment: ends before begins, and launches last.
        lines: list[tuple[float, int, str]] = [(0, 1, "I 0 0 0 0 0 0 -")]
        for begin, end, name in self.spans:
            number, kind = self.names.index(name), KINDS.get(name, 0)
            lines.append((begin, 2, f"B 0 {number} {kind} {begin * US:.0f} 0 0 -"))
            lines.append((end, 0, f"E 0 0 0 {end * US:.0f} 0 0 -"))
        lines += [(end, 1, f"J 0 0 0 {end * US:.0f} 0 0 -") for end in self.ends]
        threads = sorted({thread for _, thread, _ in self.launches})
        for host, thread, e in self.launches:
            if host < 0:
                continue
            start = (e["ts"] - self.begin) * US
            lane, stream = threads.index(thread), e["args"]["stream"]
            lines.append(
                (host, 3, f"L {lane} {NUMBERS[e['cat']]} {stream} {host * US:.0f} {start:.0f} "
                          f"{start + e['dur'] * US:.0f} {e['name'][:1000]}")
            )  # fmt: skip
        return "\n".join(line for _, _, line in sorted(lines, key=lambda line: line[:2])) + "\n"

    def expected(self) -> list[dict[str, dict[str, float]]]:
        """Nanoseconds per iteration, kind and phase: union of the kernels' intervals."""
        parts: list[dict[str, dict[int, list[tuple[float, float]]]]] = [
            {"compute": {}, "communication": {}} for _ in self.ends
        ]
        for host, _, e in self.launches:
            iteration = sum(host >= end for end in self.ends)
            if host < 0 or iteration == len(self.ends):
                continue
            known = _native.kernel_class(e["name"]) if e["cat"] == "kernel" else "copy"
            kind = "communication" if known.startswith("communication") else "compute"
            start = e["ts"] - self.begin
            parts[iteration][kind].setdefault(self.phase_at(host), []).append((start, start + e["dur"]))
        return [
            {kind: {str(phase): union(spans) * US for phase, spans in phases.items() if union(spans)}
             for kind, phases in part.items()}
            for part in parts
        ]  # fmt: skip

    def idle(self) -> list[float]:
        """Nanoseconds of each iteration in which nothing ran on the device."""
        result, begin = [], 0.0
        for end in self.ends:
            inside = [
                (max(e["ts"] - self.begin, begin), min(e["ts"] - self.begin + e["dur"], end))
                for host, _, e in self.launches if host >= 0
            ]  # fmt: skip
            result.append((end - begin - union([span for span in inside if span[0] < span[1]])) * US)
            begin = end
        return result


def union(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total


@pytest.mark.parametrize("attribution", ["memset", "call", "api"])
def test_device_seconds_per_phase(trace: list[dict[str, Any]], tmp_path: Path, attribution: str) -> None:
    job = Job(trace)
    plan = tmp_path / "plan"
    plan.write_text(job.plan())
    report = run(build(), "replay", str(plan), "1", ARGUS_KERNEL_ATTRIBUTION=attribution)
    expected = job.expected()
    told = report["iterations"]
    first = 2 if attribution == "api" else 1  # the records of launches begin with the first kernel
    assert [each["ordinal"] for each in told] == list(range(first, len(expected) + 1))
    assert report["source"]["dropped"] == 0
    for each in told:
        want = expected[each["ordinal"] - 1]
        for kind in ("compute", "communication"):
            assert each[kind].keys() == want[kind].keys()
            for phase, nanoseconds in want[kind].items():
                assert each[kind][phase] == pytest.approx(nanoseconds, rel=0.02, abs=2 * US), (kind, phase)
        assert each["idle"] == pytest.approx(job.idle()[each["ordinal"] - 1], rel=0.02)
