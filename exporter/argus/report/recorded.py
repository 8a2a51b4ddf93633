"""A report of ``argus diagnose``: its verdict, and what its private Prometheus has seen."""

from __future__ import annotations

import numpy as np

from argus import ruleset
from argus.diagnose.history import History
from argus.diagnose.lockstep import Beats
from argus.diagnose.verdict import Accusation, Verdict, accusations
from argus.prometheus import Client
from argus.report.findings import order
from argus.report.gather import gather
from argus.report.model import Axis, Document, Finding, Floats


class Recorder:
    """Takes in what a private Prometheus has seen, as the last thing before it ends.

    Args:
        run_id: The run.
        source: Where the trace is from, in words.
    """

    def __init__(self, run_id: str, source: str) -> None:
        self._run_id = run_id
        self._source = source
        self._document: Document | None = None

    def __call__(self, client: Client, beats: Beats, history: History) -> None:
        """As `argus.diagnose.judge.judge` calls it.

        Raises:
            argus.prometheus.QueryError: Prometheus does not answer.
            argus.report.gather.NothingError: The rules recorded nothing.
        """
        fired, _ = accusations(history, beats.iterations)
        found = sorted((_finding(accusation, beats) for accusation in fired), key=order)
        self._document = gather(client, self._run_id, _axis(beats), self._source, found)

    def document(self, verdict: Verdict) -> Document | None:
        """The document, with what the verdict knows besides; None where nothing was taken in."""
        document = self._document
        if document is not None:
            document.lost_gpu_hours = verdict.lost_gpu_hours
            document.slowdown = verdict.slowdown
            document.notes = verdict.unjudged + verdict.skipped
            for accusation in verdict.undecided:
                text = accusation.annotations.get("summary", accusation.name)
                document.notes.append(f"undecided, the trace is too short: {text}")
        return document


def _finding(accusation: Accusation, beats: Beats) -> Finding:
    annotations = accusation.annotations
    runbook = annotations.get("runbook_url", "")
    return Finding(
        labels=accusation.labels,
        since=beats.time(beats.iterations.index(accusation.first_iteration) + 1),
        until=None,
        summary=" ".join(annotations.get("summary", accusation.name).split()),
        description=" ".join(annotations.get("description", "").split()),
        runbook="" if runbook.startswith(ruleset.RUNBOOK_BASE) else runbook,
    )


def _axis(beats: Beats) -> Axis:
    last = len(beats.iterations) - 1

    def iterations(times: Floats) -> Floats:
        beat = np.rint((times - beats.first) / beats.interval).astype(int).clip(0, last)
        named: Floats = np.array(beats.iterations, dtype=np.float64)[beat]
        return named

    return Axis(beats.first, beats.time(last + 1), beats.interval, iterations)
