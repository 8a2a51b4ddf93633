"""Notices that a run stands still on this node, and tells whoever has something to do about it.

The same limits as the alert ArgusRunHung, as far as one node can know them: no
rank of the run here has completed an iteration for five times its slowest
recent iteration, at least two minutes; half an hour before the first one.
Declared pauses don't count.  The alert judges by all nodes; what is done here
must therefore be harmless when a run merely is slow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from argus import _native
from argus.exporter.sources import Rank
from argus.segment.state import RankState

_LOG = logging.getLogger(__name__)

LEAST_S = 120.0
_TIMES = 5
_FIRST_S = 1800.0
_LONGEST_PAUSE_S = 7200.0
"""The longest limit of a declared pause (``rules/argus-liveness.yml``); a longer one is no excuse."""
_LOOK_S = 15.0
"""Reading eight ranks takes some 30 ms: a fifth of a per cent of a core."""


@dataclass(frozen=True)
class Hang:
    """A run that stands still on this node.

    Attributes:
        run_id: Which one.
        age_s: Seconds since any of its ranks here completed an iteration.
        limit_s: The limit that this exceeds.
        ranks: Its living ranks here, those first that don't wait for others, as far as is known.
    """

    run_id: str
    age_s: float
    limit_s: float
    ranks: tuple[Rank, ...]


Reaction = Callable[[Hang], None]
"""What is done about a hang, once for each; it may take its time, and may raise."""


class HangWatch:
    """Looks every few seconds, in a thread of its own.

    Args:
        ranks: Returns the ranks of this node now, on the segments' clock.
        reactions: Called in turn when a run begins to hang; again only after it has moved.
        least_s: The least age that is a hang.
    """

    def __init__(
        self,
        ranks: Callable[[int], Iterable[Rank]],
        reactions: Sequence[Reaction],
        least_s: float = LEAST_S,
    ) -> None:
        self._ranks = ranks
        self._reactions = reactions
        self._least_s = least_s
        self._paused_ns: dict[str, int] = {}
        self._hung: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="argus-exporter-hangs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def look(self, now_ns: int) -> list[Hang]:
        """The runs that have begun to hang since the last look."""
        runs: dict[str, list[Rank]] = {}
        for rank in self._ranks(now_ns):
            if rank.up:
                runs.setdefault(rank.state.identity.run_id, []).append(rank)
        self._paused_ns = {run: then for run, then in self._paused_ns.items() if run in runs}
        hangs = {run: hang for run, ranks in runs.items() if (hang := self._judge(run, ranks, now_ns))}
        fresh = [hang for run, hang in hangs.items() if run not in self._hung]
        self._hung = set(hangs)
        return fresh

    def _judge(self, run_id: str, ranks: list[Rank], now_ns: int) -> Hang | None:
        states = [rank.state for rank in ranks]
        if any(_in_pause(state) for state in states):
            self._paused_ns[run_id] = now_ns
            return None
        excused_ns = self._paused_ns.get(run_id, 0)
        begun_ns = max(max(_last_ns(state) for state in states), excused_ns)
        age_s, limit_s = (now_ns - begun_ns) / 1e9, self._limit_s(states)
        if age_s <= limit_s:
            return None
        return Hang(run_id, age_s, limit_s, tuple(sorted(ranks, key=lambda rank: _standing(rank.state))))

    def _limit_s(self, states: Iterable[RankState]) -> float:
        slowest = [float(state.slots["wall"][-64:].max()) / 1e9 for state in states if len(state.slots)]
        return max(self._least_s, _TIMES * max(slowest)) if slowest else max(self._least_s, _FIRST_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                for hang in self.look(_native.monotonic_ns()):
                    self._react(hang)
            except Exception:  # the watch must go on
                _LOG.exception("looking for hung runs failed")
            self._stop.wait(max(min(_LOOK_S, self._least_s / 8), 20 * (time.monotonic() - began)))

    def _react(self, hang: Hang) -> None:
        _LOG.warning(
            "run %s stands still here: no iteration for %.0f s, more than %.0f s",
            _printable(hang.run_id), hang.age_s, hang.limit_s,
        )  # fmt: skip
        for reaction in self._reactions:
            try:
                reaction(hang)
            except Exception:  # the others have their turn
                _LOG.exception("what was to be done about it failed")


def _in_pause(state: RankState) -> bool:
    return (
        state.open is not None
        and state.open.kind == "pause"
        and state.now_ns - state.open.begin_ns < _LONGEST_PAUSE_S * 1e9
    )


def _last_ns(state: RankState) -> int:
    return state.last_iteration_end_ns or state.created_ns


def _standing(state: RankState) -> tuple[bool, int, int]:
    """Whoever waits in a collective comes last, whoever is behind comes first."""
    waits = state.open is not None and state.open.kind == "communication"
    return waits, state.completed, state.identity.rank


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
