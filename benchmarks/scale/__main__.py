"""The largest job of the ARGUS paper in front of one real Prometheus: 12,960 ranks on 1,620 nodes, all rules.

The job is ``argus drill masked-straggler`` (case 5 of the paper); beside it run
small jobs with the same fault at other times, from which the time from fault to
notification is measured.  The exporter's own code renders every page that is
scraped, for the very moment at which it is scraped; this is done beforehand,
for one machine can't do it in time.  Then Prometheus is run twice, with the
shipped rules and without.  Takes about a quarter of an hour on two cores and 16 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path

from argus.drill.topology import Topology
from argus.exporter.selection import Series
from argus.progress import Progress
from argus.prometheus import binary_version
from argus.ruleset import NATIVE_INTERVAL as INTERVAL
from benchmarks.__main__ import RESULTS, machine
from benchmarks.scale.bench import Plan, measure
from benchmarks.scale.job import Job
from benchmarks.scale.pages import FORMATS, series_per_rank
from benchmarks.scale.report import report

SCENARIO = "masked-straggler"
SMALL = Topology(dp=8, pp=4, ep=4)


def newest() -> Path | None:
    """The newest Prometheus that ``make setup`` has fetched; None: none."""
    here = Path(__file__).parents[2] / "build" / "prometheus"
    folder = Path(os.environ.get("ARGUS_PROMETHEUS_VERSIONS", here))
    return max(folder.glob("*/prometheus"), key=binary_version, default=None)


def plan_of(args: argparse.Namespace) -> Plan:
    """The large job, and small ones whose faults begin one a little later than the other."""
    since = INTERVAL * args.healthy
    large = Job("paper", SCENARIO, Topology(dp=args.dp, pp=args.pp, ep=args.ep), since)
    small = [
        Job(f"small{n:02}", SCENARIO, SMALL, since + INTERVAL * (n + 0.5) / args.beside, seed=n + 1)
        for n in range(args.beside)
    ]
    return Plan(
        jobs=(large, *small),
        scrapes=args.scrapes,
        healthy=args.healthy,
        past=args.past,
        format=args.format,
        series=Series(args.series),
        page=args.report,
        ingestion=not args.no_ingestion,
        binary=args.prometheus or newest(),
    )


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    job = parser.add_argument_group("the jobs")
    job.add_argument("--dp", type=int, default=1440, help="data-parallel size (%(default)s)")
    job.add_argument("--pp", type=int, default=9, help="pipeline stages (%(default)s)")
    job.add_argument("--ep", type=int, default=32, help="expert-parallel size (%(default)s)")
    job.add_argument("--beside", type=int, default=12, help="small jobs beside it (%(default)s)")
    time = parser.add_argument_group("how long")
    time.add_argument("--scrapes", type=int, default=21, help="of each node, every 15 s (%(default)s)")
    time.add_argument("--healthy", type=int, default=7, help="of these, before the fault (%(default)s)")
    time.add_argument(
        "--past", type=int, default=0,
        help="scrapes before that, the healthy ones repeated: rules cost more the more samples there are",
    )  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument(
        "--format", choices=sorted(FORMATS), default="text",
        help="text, as a Prometheus asks for unless told otherwise, or protobuf with native histograms",
    )  # fmt: skip
    how.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page about the large job")
    how.add_argument(
        "--series", choices=[each.value for each in Series], default=Series.RULES.value,
        help="what exporters serve, as argus exporter's flag says (%(default)s)",
    )  # fmt: skip
    how.add_argument("--no-ingestion", action="store_true", help="leave the run without rules out")
    how.add_argument("--prometheus", type=Path, help="its binary (the newest that make setup has fetched)")
    how.add_argument("--keep", type=Path, metavar="DIR", help="leave pages and Prometheus's data here")
    how.add_argument("--output", type=Path, default=RESULTS / "scale.json", help="(%(default)s)")
    how.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure, write the result, and say whether everything is within its budget (1: something is not)."""
    args = parse(argv)
    plan = plan_of(args)
    if not args.quiet:
        exported = series_per_rank(plan.jobs[0], plan.series, FORMATS[plan.format])
        print(f"a rank exports {exported:.1f} series ({args.series}, {args.format})", file=sys.stderr)
    where = nullcontext(args.keep) if args.keep else tempfile.TemporaryDirectory(prefix="argus-scale-")
    with where as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        result = report(plan, measure(plan, Path(folder), Progress(quiet=args.quiet)))
    words = sys.argv[1:] if argv is None else argv
    record = {
        "benchmark": "scale",
        "command": "make bench-scale" + (f' ARGS="{" ".join(words)}"' if words else ""),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "result": result,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if all(result["within_budget"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
