"""What expressions cost on the data that ``make bench-scale ARGS="--keep DIR"`` left behind.

``python -m benchmarks.scale.forms DIR`` measures every shipped rule, with more
arguments those expressions instead.  It prints CPU seconds of Prometheus for
one evaluation, the least of several, and how many series come out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from argus import ruleset
from argus.prometheus import Prometheus
from benchmarks.scale.measure import cpu_seconds

_CONFIG = "global: {evaluation_interval: 1h}\nscrape_configs: []\n"


def cost(prometheus: Prometheus, expression: str, moment: float, times: int) -> str:
    """CPU seconds of one evaluation, how many series come out, and the value where it is one."""
    least, found = float("inf"), []
    for _ in range(times):
        before = cpu_seconds(prometheus.pid)
        found = prometheus.client.query(expression, moment)
        least = min(least, cpu_seconds(prometheus.pid) - before)
    value = f"{found[0].value:g}" if len(found) == 1 else f"{len(found)} series"
    return f"{least:8.3f} s  {value:>14}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.forms", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("expressions", nargs="*", metavar="EXPRESSION")
    parser.add_argument("--prometheus", type=Path, help="its binary ($ARGUS_PROMETHEUS, or on PATH)")
    parser.add_argument("--times", type=int, default=3, help="how often each is measured (%(default)s)")
    args = parser.parse_args()
    with Prometheus(
        _CONFIG, binary=args.prometheus, directory=args.folder / "rules", timeout=300,
        native_histograms=True,
    ) as prometheus:  # fmt: skip
        newest = prometheus.client.query("max(max_over_time(timestamp(argus_rank_up)[1h:5s]))")[0].value
        # All nodes have been scraped in the interval before it.
        moment = newest - 1
        if args.expressions:
            for expression in args.expressions:
                print(cost(prometheus, expression, moment, args.times), expression, flush=True)
            return 0
        for text in ruleset.load().values():
            for group in yaml.safe_load(text)["groups"]:
                share = 15 / ruleset.parse_duration(group["interval"])
                total = 0.0
                for rule in group["rules"]:
                    line = cost(prometheus, rule["expr"], moment, args.times)
                    total += float(line.split()[0])
                    print(line, group["name"], rule.get("record") or rule["alert"], flush=True)
                print(f"{total:8.3f} s in all, {total * share:.3f} s in 15 s: {group['name']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
