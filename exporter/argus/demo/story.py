"""The demo's course: healthy, then one rank is slow, then the alert is read and judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argus.demo import control
from argus.demo.control import Fault, Report
from argus.demo.stack import RANKS, SCRAPE_INTERVAL, DemoError, Stack
from argus.demo.verdict import Accusation, accusation, delivered, describe, expected
from argus.prometheus import Prometheus, QueryError
from argus.report.command import missing, write
from argus.report.gather import NothingError, gather
from argus.report.model import Axis

HEALTHY_SECONDS = 15.0
"""How long the healthy job is watched before the fault."""

AFTERWARDS_SECONDS = 20.0
"""How long others are watched after the verdict: a window of iterations, a scrape and an evaluation."""

NO_FAULT_SECONDS = 60.0
"""How long a job without a fault is watched: as long as a fault may take to be notified."""

NOTIFIED_WITHIN = 60.0
"""Seconds from the fault to the notification that the demo promises."""


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        right: Whether exactly the slowed rank and phase were accused, in time.
        verdict: The same in one sentence.
    """

    right: bool
    verdict: str


class Story:
    """Runs the demo on a `Stack` and tells what happens, with the seconds since its start."""

    def __init__(self, stack: Stack, say: Callable[[str], None]) -> None:
        self._stack = stack
        self._say = say
        self._begun = time.monotonic()
        self._started_at = time.time()
        self._prometheus: Prometheus
        self._addresses: list[str] = []

    def tell(self, text: str) -> None:
        """One line, with the time."""
        self._say(f"[{time.monotonic() - self._begun:5.1f} s] {text}")

    def set_up(self, timeout: float) -> None:
        """Start everything, and wait until Prometheus has every rank's window."""
        stack = self._stack
        self.tell(f"Starting a training job of {RANKS} ranks under torchrun (gloo, CPU), run {stack.run_id}")
        stack.start_job()
        exporter = stack.start_exporter()
        self._started(f"Exporter      http://{exporter}/metrics")
        alertmanager = stack.start_alertmanager()
        self._started(f"Alertmanager  {alertmanager.url}  (delivers to {stack.webhook.url})")
        self._prometheus = stack.start_prometheus(exporter, alertmanager)
        version = ".".join(map(str, self._prometheus.version))
        self._started(
            f"Prometheus    {self._prometheus.url}  ({version}, scrapes every {SCRAPE_INTERVAL:.0f} s)"
        )
        self._prometheus.wait_for_alertmanager()
        ranks = f'count(argus_window_iteration_seconds{{run_id="{stack.run_id}", quantile="0.5"}}) == {RANKS}'
        stack.wait(lambda: self._value(ranks), timeout, "Prometheus has not seen all ranks train")
        iteration = self._value(
            f'max(argus_window_iteration_seconds{{run_id="{stack.run_id}", quantile="0.5"}})'
        )
        self.tell(f"All {RANKS} ranks train, {iteration or 0:.3f} s an iteration; Prometheus sees every one")

    def healthy(self) -> Outcome | None:
        """Watch the healthy job; an outcome only if somebody is accused already."""
        self.tell(f"Watching the healthy job for {HEALTHY_SECONDS:.0f} s: nobody should be accused")
        return self._watch(HEALTHY_SECONDS, None)

    def no_fault(self) -> Outcome:
        """Watch for as long as a fault would take to be notified."""
        self.tell(f"No fault: watching for {NO_FAULT_SECONDS:.0f} s more")
        wrong = self._watch(NO_FAULT_SECONDS, None)
        return wrong or Outcome(True, "nobody was accused, and nobody is at fault")

    def fault(self, fault: Fault, timeout: float) -> Outcome:
        """Slow one rank, wait for the notification, and see whom it accuses."""
        done = self._inject(fault)
        wanted = expected(fault)
        alert = self._notification(wanted, done, timeout)
        if isinstance(alert, Outcome):
            return alert
        took = alert["received"] - done.since
        self.tell(f"Notified {took:.1f} s after the fault; the alert as delivered to the webhook:")
        self._say("\n" + describe(alert) + "\n")
        self.tell(f"Watching for {AFTERWARDS_SECONDS:.0f} s more: nobody else should be accused")
        wrong = self._watch(AFTERWARDS_SECONDS, wanted)
        if wrong is not None:
            return wrong
        accused = f"{wanted} accused, nobody else, {took:.1f} s after the fault"
        if took > NOTIFIED_WITHIN:
            return Outcome(False, f"{accused}: later than {NOTIFIED_WITHIN:.0f} s")
        return Outcome(True, accused)

    def report(self, path: Path) -> None:
        """Write a page about the run; a reason why not is told, and fails nothing."""
        reason = missing()
        if not reason:
            axis = Axis(self._started_at, time.time(), SCRAPE_INTERVAL)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write(
                    gather(self._prometheus.client, self._stack.run_id, axis, "the demo's Prometheus"), path
                )
            except (NothingError, QueryError, OSError) as error:
                reason = str(error)
        self.tell(f"No report: {reason}" if reason else f"Report        {path.resolve().as_uri()}")

    def keep(self) -> None:
        """Say where everything is that is left running."""
        self.tell("Everything keeps running until Ctrl-C:")
        for address in self._addresses:
            self._say(f"          {address}")

    def _started(self, address: str) -> None:
        self._addresses.append(address)
        self.tell(address)

    def _inject(self, fault: Fault) -> Report:
        control.order(self._stack.control, fault)
        done: Report = self._stack.wait(
            lambda: control.reported(self._stack.control),
            15,
            "the job does not react to the order to be slow",
        )
        normal, slow = done.normal_seconds, done.normal_seconds + done.added_seconds
        self.tell(
            f"FAULT: rank {fault.rank} now takes {1000 * slow:.0f} ms instead of {1000 * normal:.0f} ms for "
            f"{fault.phase} ({slow / normal:.1f} times)"
        )
        return done

    def _notification(self, wanted: Accusation, done: Report, timeout: float) -> dict[str, Any] | Outcome:
        """The wanted alert with the time of its arrival, or what came instead."""
        seen: set[tuple[Accusation, str]] = set()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self._stack.check()
            self._follow(seen, done.since)
            delivery = self._stack.webhook.wait(lambda payload: wanted in delivered([payload]), 0.5)
            if delivery is not None:
                return {**delivered([delivery.payload])[wanted], "received": delivery.received}
        others = self._accused() - {wanted}
        instead = f" {', '.join(map(str, others))} accused instead." if others else " Nobody was accused."
        return Outcome(False, f"{wanted} was not notified within {timeout:.0f} s of the fault.{instead}")

    def _watch(self, seconds: float, wanted: Accusation | None) -> Outcome | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._stack.check()
            wrong = self._accused() - {wanted}
            if wrong:
                return Outcome(False, f"wrongly accused: {', '.join(map(str, wrong))}")
            time.sleep(0.5)
        return None

    def _follow(self, seen: set[tuple[Accusation, str]], since: float) -> None:
        """Tell what Prometheus thinks, once for each alert and state."""
        for alert in self._prometheus.client.alerts():
            key = (accusation(alert), alert["state"])
            if key not in seen:
                seen.add(key)
                self.tell(f"Prometheus: {key[0]} is {key[1]}, {time.time() - since:.1f} s after the fault")

    def _accused(self) -> set[Accusation]:
        """Whoever an alert that fires, in Prometheus or in a notification, names."""
        firing = {
            accusation(alert) for alert in self._prometheus.client.alerts() if alert["state"] == "firing"
        }
        payloads = [delivery.payload for delivery in self._stack.webhook.deliveries]
        return firing | set(delivered(payloads))

    def _value(self, expression: str) -> float | None:
        samples = self._prometheus.client.query(expression)
        return samples[0].value if samples else None


def play(story: Story, fault: Fault | None, timeout: float) -> Outcome:
    """The whole course.

    Raises:
        DemoError: Something that the demo needs has failed.
    """
    story.set_up(timeout)
    wrong = story.healthy()
    if wrong is not None:
        return wrong
    return story.no_fault() if fault is None else story.fault(fault, timeout)


__all__ = ["DemoError", "Outcome", "Story", "play"]
