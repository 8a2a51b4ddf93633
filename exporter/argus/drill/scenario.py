"""What a scenario is made of: its settings, its faults, its truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from argus.drill.faults import Between, Fault, Stop
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.drill.truth import SYMPTOMS, Claim, Truth

_NOBODY = Truth()
_USUAL = Topology()


class ScenarioError(ValueError):
    """The scenario can't be had with these settings; the message says why."""


@dataclass(frozen=True)
class Settings:
    """What the command line decides.

    Attributes:
        topology: The job.
        profile: Its times.
        rank: Culprit, or one of the culprits.
        factor: Magnitude.
        since: Seconds from the drill's begin to the fault's.
        bytes_known: Whether collectives tell their payload.
    """

    topology: Topology
    profile: Profile
    rank: int
    factor: float
    since: float
    bytes_known: bool = True

    @property
    def dp(self) -> int:
        """Pipeline of the culprit."""
        return self.topology.coordinates(self.rank).dp or 0


@dataclass(frozen=True)
class Drill:
    """A scenario with its settings: what happens, and what must be said of it."""

    faults: tuple[Fault, ...] = ()
    stops: tuple[Stop, ...] = ()
    truth: Truth = _NOBODY


@dataclass(frozen=True)
class Scenario:
    """One entry of the catalogue.

    Attributes:
        name: On the command line.
        about: What happens, one sentence.
        expected: The verdict, in words.
        build: From settings to what happens.
        factor: Magnitude unless told otherwise.
        topology: Unless told otherwise.
        above: Up to this magnitude there is no fault.
        past: Seconds that the rules must know a run before its fault.
    """

    name: str
    about: str
    expected: str
    build: Callable[[Settings], Drill]
    factor: float = 2.0
    topology: Topology = _USUAL
    above: float = 1.0
    past: float = 0.0


def drill(settings: Settings, fault: Fault, *must: Claim, may: tuple[Claim, ...] = ()) -> Drill:
    """A fault from its time on; the run may get slower by it."""
    return Drill((Between(fault, settings.since),), truth=Truth(must, (*SYMPTOMS, *may)))
