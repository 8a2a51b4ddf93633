"""Several drills as runs of one Prometheus, judged together: they must not disturb each other either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from argus import ruleset
from argus.drill.command import settings_of
from argus.drill.scenarios import SCENARIOS
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.drill.truth import Claim, Judgement, Truth, judge
from benchmarks.drills.job import Job
from benchmarks.drills.promtool import Alert, deciding, evaluate
from benchmarks.drills.series import STAGGER, Line, Recording


@dataclass(frozen=True)
class Run:
    """One drill of a batch; what is None or not given is the scenario's own."""

    scenario: str
    topology: Topology | None = None
    factor: float | None = None
    rank: int | None = None
    since: float = 120.0
    seed: int = 1
    profile: Profile = field(default_factory=Profile)
    bytes_known: bool = True

    def job(self) -> Job:
        """Ready to be played."""
        scenario = SCENARIOS[self.scenario]
        topology = self.topology or scenario.topology
        settings = settings_of(
            scenario, topology, self.profile, self.rank, self.factor, self.since, self.bytes_known
        )
        return Job(scenario.build(settings), topology, self.profile, self.seed)


@dataclass
class Verdict:
    """What was said of one run.

    Attributes:
        truth: What had to be said.
        firing: By evaluation (seconds), labels of what fired, without ``run_id``.
    """

    truth: Truth
    firing: dict[float, list[dict[str, str]]]

    @property
    def ever(self) -> list[dict[str, str]]:
        """Everything that fired at any time, once."""
        every = {frozenset(alert.items()) for alerts in self.firing.values() for alert in alerts}
        return [dict(alert) for alert in sorted(every, key=sorted)]

    @property
    def judgement(self) -> Judgement:
        return judge(self.truth, self.ever)

    def first(self, claim: Claim, severity: str | None = None) -> float | None:
        """When it was first said, in seconds."""
        for time, alerts in sorted(self.firing.items()):
            if any(claim.matches(a) and severity in (None, a["severity"]) for a in alerts):
                return time
        return None

    def starts(self, *ignored: str) -> dict[Alert, int]:
        """How often each alert began to fire; ``ignored`` labels do not tell alerts apart."""
        count: dict[Alert, int] = {}
        before: set[Alert] = set()
        for _, alerts in sorted(self.firing.items()):
            now = {frozenset((k, v) for k, v in alert.items() if k not in ignored) for alert in alerts}
            for alert in now - before:
                count[alert] = count.get(alert, 0) + 1
            before = now
        return count


def play(
    runs: Mapping[str, Run | Job],
    seconds: float,
    *,
    promtool: str,
    folder: Path,
    interval: float = 15.0,
    more_rules: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> dict[str, Verdict]:
    """Play runs for so long and let the shipped rules judge them.

    Args:
        runs: By run_id; what is no scenario as a job.
        seconds: How long.
        promtool: Its path.
        folder: For its files.
        interval: Seconds between two scrapes; the rules are rendered for it.
        more_rules: Rule files evaluated after the shipped ones, rendered already.
        timeout: Of promtool, seconds.
    """
    truths = {}

    def lines() -> Iterator[Line]:
        for run_id, run in runs.items():
            job = run if isinstance(run, Job) else run.job()
            truths[run_id] = job.truth
            recording = Recording(job, run_id, interval)
            recording.run(seconds)
            yield from recording.lines(isinstance(run, Job) or run.bytes_known)

    fired = evaluate(
        lines(),
        {**deciding(ruleset.render(interval)), **(more_rules or {})},
        grid=interval / STAGGER,
        interval=interval,
        until=seconds,
        promtool=promtool,
        folder=folder,
        timeout=timeout,
    )  # fmt: skip
    return {run_id: Verdict(truth, _of(run_id, fired)) for run_id, truth in truths.items()}


def _of(run_id: str, fired: Mapping[float, set[Alert]]) -> dict[float, list[dict[str, str]]]:
    mine = ("run_id", run_id)
    return {
        time: [dict(alert - {mine}) for alert in alerts if mine in alert] for time, alerts in fired.items()
    }
