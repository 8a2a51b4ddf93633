"""Alerts that rules raise over given series, evaluated by promtool."""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from argus import ruleset
from argus.ruleset import parts
from benchmarks.drills.series import Line

Alert = frozenset[tuple[str, str]]
"""Labels, ``alertname`` among them."""
_BESIDE = (
    "argus_window_iteration_seconds{",
    "argus_world_size{",
    "argus_collective_members{",
    "argus_collective_nodes{",
)
"""What rules of links read beside collectives."""
_MOST = 2400
"""Collectives of ranks in one query."""
_LINKS = 'ALERTS{alertstate="firing", alertname="ArgusLinkDegraded"}'
_FIRING = 'ALERTS{alertstate="firing"}'


def evaluate(
    lines: Iterable[Line],
    rules: Mapping[str, str],
    *,
    grid: float,
    interval: float,
    until: float,
    promtool: str,
    folder: Path,
    timeout: float = 600.0,
) -> dict[float, set[Alert]]:
    """What fires at every evaluation: seconds -> labels of the alerts.

    Args:
        lines: Series with values every ``grid`` seconds.
        rules: File name -> text; groups are evaluated in their order.
        grid, interval, until: Seconds between values, between evaluations, of the last evaluation.
        promtool: Its path.
        folder: For its files.
        timeout: Seconds.

    Raises:
        RuntimeError: promtool does not take these rules or series.
    """
    for name, text in rules.items():
        (folder / name).write_text(text)
    groups = [group["name"] for text in rules.values() for group in yaml.safe_load(text)["groups"]]
    file = folder / "test.yml"
    with file.open("w") as out:
        out.write(f"rule_files: [{', '.join(rules)}]\nevaluation_interval: {_text(interval)}\n")
        out.write(f"group_eval_order: [{', '.join(groups)}]\ntests:\n")
        for alerts, part in _parts(lines):
            out.write(f"  - interval: {_text(grid)}\n    input_series:\n")
            # promtool joins its series one by one into one text, which takes forever for many.  It reads
            # that text line by line, so all of them can be the values of the first.
            first, *others = part
            out.write(f"      - series: '{first[0]}'\n        values: |-\n          {first[1]}\n")
            out.writelines(f"            {series} {values}\n" for series, values in others)
            out.write("    promql_expr_test:\n")
            for step in range(1, int(until / interval) + 1):
                out.write(
                    f"      - {{expr: '{alerts}', eval_time: {_text(step * interval)}, exp_samples: []}}\n"
                )
    command = [promtool, "test", "rules", str(file)]
    # Its heap is large and lives long: collecting it less often saves a third of the time.
    environment = {"GOGC": "400", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    return firing(done.stdout + done.stderr)


def _parts(lines: Iterable[Line]) -> Iterator[tuple[str, list[Line]]]:
    """All series, and which alerts are judged by them.

    Where collectives are more than promtool takes in one query, links are judged apart, for the other
    alerts need what is not there.  Its limit is 10,000 samples, and a rule holds up to four times what it
    reads.  Links are compared with those of the same run, group and operation only; pipelines are judged
    by their waits, beside phases.
    """
    every = list(lines)
    links: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for line in every:
        if line[0].startswith("argus_window_collective_"):
            links[tuple(re.findall(r'(?:run_id|group|op)="([^"]*)"', line[0]))].append(line)
    # Of each there are two quantiles, occurrences and bandwidth.
    if sum(map(len, links.values())) <= 4 * _MOST:
        yield _FIRING, every
        return
    judged = ('quantile="0.0"', "argus_window_collective_bytes_per_second")
    apart = {
        series
        for part in links.values()
        for series, _ in part
        if 'group="pp"' not in series or any(one in series for one in judged)
    }
    yield _FIRING, [line for line in every if line[0] not in apart]
    beside = [line for line in every if line[0].startswith(_BESIDE)]
    part: list[Line] = []
    for mine in links.values():
        if part and len(part) + len(mine) > 4 * _MOST:
            yield _LINKS, part + beside
            part = []
        part += mine
    yield _LINKS, part + beside


def deciding(rules: Mapping[str, str]) -> dict[str, str]:
    """The rules without what decides nothing but takes half of the time: annotations, series for people.

    promtool would evaluate the latter up to sixteen times as often as a Prometheus does, and every query
    in the annotations at every evaluation.
    """
    documents = {name: yaml.safe_load(text) for name, text in rules.items()}
    groups = [group for document in documents.values() for group in document["groups"]]
    every = [rule for group in groups for rule in group["rules"]]
    for rule in every:
        rule.pop("annotations", None)
    names = {parts.name_of(rule) for rule in every if "alert" in rule}
    while True:
        read = set().union(*(parts.reads(rule) for rule in every if parts.name_of(rule) in names))
        if read <= names:
            break
        names |= read
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if parts.name_of(rule) in names]
    return {
        name: ruleset.dump({**document, "groups": kept})
        for name, document in documents.items()
        if (kept := [group for group in document["groups"] if group["rules"]])
    }


def _text(seconds: float) -> str:
    return ruleset.format_duration(seconds)


def firing(output: str) -> dict[float, set[Alert]]:
    """What promtool says of expectations that all were: nothing fires."""
    if ("FAILED" not in output and "SUCCESS" not in output) or ", err: " in output:
        raise RuntimeError("\n".join(re.findall(r".*, err: .*", output)) or output[-4000:])
    found: dict[float, set[Alert]] = {}
    for time, got in re.findall(r"time: (\S+),\s+exp:.*?\n\s+got: ?(.*?)\n", output):
        alerts: set[Alert] = set()
        for text in re.findall(r"\{([^}]*)\}", got):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
            del labels["alertstate"]
            labels.pop("__name__", None)
            alerts.add(frozenset(labels.items()))
        if not alerts and got not in ("", "nil"):
            raise RuntimeError(got)
        found.setdefault(ruleset.parse_duration(time), set()).update(alerts)
    if "FAILED" in output and not found:
        raise RuntimeError(output)
    return found
