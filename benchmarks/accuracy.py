"""Who is accused, in some two hundred drills, by the shipped rules and by the plain method.

    make bench-accuracy       or            python -m benchmarks.accuracy [--only SCENARIO] [--output FILE]

Every drill is a modelled job with a known fault (or none), played in simulated time and scraped node by
node; promtool evaluates the shipped rules over what was scraped, many jobs at once as runs of one
Prometheus.  A drill is right when every culprit is named with its cause and nothing else is said; it is
a false accusation when anything is said that is not true.  The plain method (z > 3, CV > 0.1;
drills/plain.yml) sees the same seconds, waiting left out already, and only has to name the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from argus.drill.truth import Claim
from benchmarks.__main__ import RESULTS, machine
from benchmarks.drills.batch import Run, Verdict, play
from benchmarks.drills.matrix import Length, batches

PLAIN = Path(__file__).parent / "drills" / "plain.yml"
METHODS = {"z": ("PlainZScore",), "cv": ("PlainCv",), "z or cv": ("PlainZScore", "PlainCv")}
SHOWN = ("scenario", "topology", "factor", "iteration_seconds", "noise", "missing", "false")
GROUP_WAIT = 5.0
"""Seconds from a firing alert to the notification: ``group_wait`` of the example Alertmanager."""


def judged(length: Length, run: Run, verdict: Verdict) -> dict[str, Any]:
    """One row of the result."""
    ours = Verdict(
        verdict.truth,
        {t: [a for a in alerts if a["severity"] != "plain"] for t, alerts in verdict.firing.items()},
    )
    judgement = ours.judgement
    assert run.topology is not None
    first = [ours.first(claim) for claim in ours.truth.must]
    flips = sum(count - 1 for count in ours.starts().values())
    return {
        "scenario": run.scenario,
        "ranks": run.topology.ranks,
        "topology": {k: v for k, v in asdict(run.topology).items() if v != 1},
        "factor": run.factor,
        "iteration_seconds": length.iteration,
        "scrape_interval_seconds": length.interval,
        "noise": run.profile.noise,
        "hiccups": run.profile.hiccups,
        "seed": run.seed,
        "right": judgement.right,
        "missing": [str(claim) for claim in judgement.missing],
        "false": judgement.false,
        "notified_seconds": [
            t - length.since + GROUP_WAIT if t is not None else None for t in first
        ],
        "severities": sorted({alert["severity"] for alert in ours.ever}),
        "fired_again": flips,
        "plain": {name: plain(verdict, alerts) for name, alerts in METHODS.items()},
    }  # fmt: skip


def plain(verdict: Verdict, alerts: Iterable[str]) -> str:
    """right, silent or wrong, by the ranks that the plain method names."""
    named = {a["rank"] for a in verdict.ever if a["alertname"] in alerts}
    guilty = {dict(claim.labels)["rank"] for claim in _about_ranks(verdict)}
    if named - guilty:
        return "wrong"
    nobody = not (verdict.truth.must or verdict.truth.any_of)
    return "right" if named == guilty and (guilty or nobody) else "silent"


def _about_ranks(verdict: Verdict) -> list[Claim]:
    return [claim for claim in verdict.truth.must if "rank" in dict(claim.labels)]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the table says, in figures."""
    soon = [
        t
        for row in rows
        if row["scenario"] in ("straggler", "masked-straggler") and (row["factor"] or 0) >= 2
        and row["iteration_seconds"] <= 2 and row["scrape_interval_seconds"] == 15
        for t in row["notified_seconds"] if t is not None
    ]  # fmt: skip
    nobody = [row for row in rows if row["scenario"] in NOBODY]
    ranks = [row for row in rows if row["scenario"] in RANKS]
    others = [row for row in rows if row["scenario"] not in NOBODY | RANKS]
    return {
        "drills": len(rows),
        "right": sum(row["right"] for row in rows),
        "right_share": round(sum(row["right"] for row in rows) / len(rows), 4),
        "false_accusations": sum(bool(row["false"]) for row in rows),
        "fired_again": sum(row["fired_again"] for row in rows),
        "notified_seconds_short_steps_factor_2_and_more": {
            "drills": len(soon),
            "median": statistics.median(soon) if soon else None,
            "worst": max(soon, default=None),
        },
        "plain_method": {
            name: {
                "of_slow_ranks": dict(Counter(row["plain"][name] for row in ranks)),
                "of_links_stages_and_work": dict(Counter(row["plain"][name] for row in others)),
                "of_nobody_at_fault": dict(Counter(row["plain"][name] for row in nobody)),
            }
            for name in METHODS
        },
    }


NOBODY = {"healthy", "common-speed", "checkpoint", "restart", "skewed-work-unknown"}
RANKS = {
    "straggler",
    "masked-straggler",
    "bubble",
    "host-bound",
    "data-loading",
    "two-faults",
    "intermittent",
}


def table(rows: list[dict[str, Any]]) -> str:
    """By scenario, in Markdown."""
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by[row["scenario"]].append(row)
    lines = [
        "| scenario | drills | right | false | plain z > 3 or CV > 0.1: right / silent / wrong |",
        "| --- | --- | --- | --- | --- |",
    ]
    for scenario, found in [*by.items(), ("all", rows)]:
        counts = Counter(row["plain"]["z or cv"] for row in found)
        plainly = " / ".join(str(counts[word]) for word in ("right", "silent", "wrong"))
        right, false = sum(row["right"] for row in found), sum(bool(row["false"]) for row in found)
        lines.append(f"| {scenario} | {len(found)} | {right} | {false} | {plainly} |")
    return "\n".join(lines)


def page(result: dict[str, Any]) -> str:
    """The result for people, in Markdown."""
    rows, figures = result["drills"], result["summary"]
    soon = figures["notified_seconds_short_steps_factor_2_and_more"]
    ranks = sorted({row["ranks"] for row in rows})
    not_right = [row for row in rows if not row["right"]]
    lines = [
        "# Accuracy",
        "",
        f"{len(rows)} drills of {ranks[0]} to {ranks[-1]} ranks: {figures['right']} right "
        f"({figures['right_share']:.1%}), {figures['false_accusations']} with a false accusation.",
        f"Stragglers of factor 2 and more in steps of up to 2 s, scraped every 15 s: notified after "
        f"{soon['median']:.0f} s in the median, {soon['worst']:.0f} s at worst ({soon['drills']}).",
        "",
        "Written by `make bench-accuracy`; every drill is in [accuracy.json](accuracy.json).",
        "",
        table(rows),
        "",
    ]
    for row in not_right:
        what = {key: row[key] for key in SHOWN}
        lines.append(f"- not right: {what}")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", metavar="SCENARIO", action="append", help="these only; keeps nothing")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="promtools at once (%(default)s)")
    parser.add_argument("--promtool", default=shutil.which("promtool"), help="its path (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS / "accuracy.json", help="%(default)s")
    args = parser.parse_args()
    if not args.promtool:
        parser.error("promtool is not installed; it comes with Prometheus")
    os.nice(10)
    begin, rows, failed = time.monotonic(), [], 0
    chosen = [(length, only(batch, args.only)) for length, batch in batches()]
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(play_batch, length, batch, args.promtool) for length, batch in chosen if batch]
        for done in as_completed(waiting):
            try:
                rows += done.result()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"promtool failed: {error}", file=sys.stderr)
            print(f"{len(rows)} drills, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: row["seed"])
    result = {"summary": {**summary(rows), "seconds": round(time.monotonic() - begin)}, "drills": rows}
    print(json.dumps(result["summary"], indent=2))
    print(table(rows))
    if not args.only:
        args.output.write_text(json.dumps(record(result), indent=1) + "\n")
        args.output.with_suffix(".md").write_text(page(result))
    return 1 if failed else 0


def only(batch: dict[str, Run], scenarios: list[str] | None) -> dict[str, Run]:
    """Those of the scenarios, if any are asked for."""
    return {name: run for name, run in batch.items() if not scenarios or run.scenario in scenarios}


def play_batch(length: Length, runs: dict[str, Run], promtool: str) -> list[dict[str, Any]]:
    """Rows of drills that are judged together; tells of what is not right."""
    with tempfile.TemporaryDirectory(prefix="argus-accuracy-") as folder:
        verdicts = play(
            runs, length.seconds, promtool=promtool, folder=Path(folder), interval=length.interval,
            more_rules={"plain.yml": PLAIN.read_text()}, timeout=3600.0,
        )  # fmt: skip
    rows = [judged(length, run, verdicts[name]) for name, run in runs.items()]
    for row in rows:
        if not row["right"]:
            shown = {key: row[key] for key in SHOWN}
            print(f"not right: {shown}", file=sys.stderr, flush=True)
    return rows


def record(result: dict[str, Any]) -> dict[str, Any]:
    """The result with what it depends on."""
    return {
        "benchmark": "accuracy",
        "command": "make bench-accuracy",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "result": result,
    }


if __name__ == "__main__":
    sys.exit(main())
