"""From the events of a training loop to iterations and phases; knows nothing of torch.

An iteration ends at the first fetch of a batch after the step was done.  A
loop whose batches are not seen here ends it at the next forward pass instead.
The step is done when an optimizer stepped, or, because a loss scaler skips
steps without a sign, when gradients are cleared after a backward pass.

Between the last batch of an epoch and the first of the next the loop is in a
declared pause: validation and checkpoints are nobody's slow iteration.  So it is
in the middle of an epoch from the first call of a model in eval mode after a
step to the next batch.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec

import argus

EVALUATION = "evaluation"
"""Kind of the pause between two passes over the data too: what is mostly done there, and its limit."""

PHASE_KINDS = {
    "data_loading": "host",
    "buffer_sync": "communication",
    "forward": "compute",
    "backward": "compute",
    "grad_sync": "communication",
    "optimizer": "compute",
}
"""The phases of a training loop, and their kinds where compute can be told from waiting."""

_log = logging.getLogger("argus.torch")
_P = ParamSpec("_P")


def _event(
    method: Callable[Concatenate[Recorder, _P], None],
) -> Callable[Concatenate[Recorder, _P], None]:
    """An event that never raises: the first failure turns the recorder off."""

    @functools.wraps(method)
    def safely(self: Recorder, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.off:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.turn_off(f"{type(error).__name__} in {method.__name__}: {error}")

    return safely


def show(recording: bool) -> None:
    """Tell the exporter whether the loop is being recorded: ``argus_tracer_enabled{source="torch"}``."""
    from argus import _native  # where there is none, nothing is attached

    _native.source("torch", recording)


class Recorder:
    """The state of one process's training loop.

    Attributes:
        off: Whether it has given up; why is in ``reason``.
        reason: Why it gave up, else empty.
        in_forward: Whether a forward pass is being recorded; one inside another is a part of it.
        backward_task: The last backward pass that began.
        sync_follows: Whether gradients are reduced at its end.
    """

    def __init__(self, kinds: Mapping[str, str], iterations: bool = True) -> None:
        """Start outside any iteration.

        Args:
            kinds: Kinds that differ from `PHASE_KINDS`, by phase.
            iterations: Whether to mark iterations; False where the loop marks its own.
        """
        self.off = False
        self.reason = ""
        self.in_forward = False
        self.backward_task = -1
        self.sync_follows = False
        self._kinds = {**PHASE_KINDS, **kinds}
        self._phases = {name: argus.phase(name, kind) for name, kind in self._kinds.items()}
        self._open: list[str] = []
        self._iterations = iterations
        self._iteration: AbstractContextManager[Any] | None = None
        self._pause: AbstractContextManager[Any] | None = None
        self._thread = threading.get_ident()
        self._fetches = 0  # in this iteration
        self._fetched_since_backward = False
        self._backward_done = False  # since the last step
        self._step_done = False  # since the iteration began
        self._steps_until_blind = 3  # steps without any forward pass until this is said; -1: never
        show(True)

    @property
    def on_loop_thread(self) -> bool:
        """Whether the caller is the thread that set up tracing: only that one trains."""
        return threading.get_ident() == self._thread

    def has_kinds(self, kinds: Mapping[str, str]) -> bool:
        """Whether these kinds are the recorder's own."""
        return {**self._kinds, **kinds} == self._kinds

    @_event
    def fetch_begins(self) -> None:
        """The loop asks for the next batch."""
        self._close_stale()
        self._end("optimizer")
        first = self._pause is not None and self._iteration is None  # of an epoch
        self._end_pause()
        if self._step_done:
            self._end_iteration()
        if first:
            self._begin_iteration()
        self._begin("data_loading")

    @_event
    def fetch_ends(self) -> None:
        """The loop has its next batch."""
        self._end("data_loading")
        self._begin_iteration()
        self._fetches += 1
        self._fetched_since_backward = True

    @_event
    def fetch_fails(self) -> None:
        """An exception other than the data's end came instead of a batch."""
        self._end("data_loading")

    @_event
    def data_ends(self) -> None:
        """There is no next batch, or the loop has dropped the iterator."""
        self._end("data_loading")
        if self._step_done:
            self._end_iteration()
        if self._iteration is None:
            self._begin_pause()

    @_event
    def evaluation_runs(self) -> None:
        """A model in eval mode is called.

        After the step and before the next batch that is an evaluation in the
        middle of an epoch, a pause until the loop asks for that batch; where the
        program has a phase open, it knows better what it does.
        """
        between = self._step_done and self._fetches and self._pause is None
        if between and not argus.status().get("open_phases"):
            self._begin_pause()

    @_event
    def forward_begins(self, phase: str | None) -> None:
        """A training forward pass begins, with ``phase`` (none: a part of it opens its own)."""
        self._close_stale()
        self._end_pause()
        if self._step_done and not self._fetches:
            self._end_iteration()
        self._begin_iteration()
        if phase is not None:
            self._begin(phase)
        self.in_forward = True

    @_event
    def forward_computes(self) -> None:
        """The model's own forward begins, after what a wrapper does first."""
        self._end("buffer_sync")
        self._begin("forward")

    @_event
    def forward_computed(self) -> None:
        """The model's own forward has ended, well or by an exception."""
        self._end("forward")

    @_event
    def forward_ends(self) -> None:
        """The forward pass has ended, well or by an exception."""
        self.in_forward = False
        self._steps_until_blind = -1
        self._end("buffer_sync")
        self._end("forward")

    @_event
    def backward_begins(self, task: int, sync: bool) -> None:
        """A gradient has reached a model's output.

        Args:
            task: Number of the backward pass.
            sync: Whether that model's gradients are reduced at its end.
        """
        if task == self.backward_task:
            self.sync_follows |= sync
            return
        self.backward_task, self.sync_follows = task, sync
        self._close_stale()
        self._begin("backward")

    @_event
    def backward_ends(self) -> None:
        """All gradients of this rank are computed."""
        self._end("backward")
        self._backward_done = True
        self._fetched_since_backward = False
        if self.sync_follows:
            self._begin("grad_sync")

    @_event
    def sync_ends(self) -> None:
        """The gradients of all ranks are reduced."""
        self._end("grad_sync")

    @_event
    def optimizer_begins(self) -> None:
        """An optimizer is about to step."""
        self._close_stale()
        self._begin("optimizer")

    @_event
    def optimizer_ends(self) -> None:
        """An optimizer has stepped."""
        self._end("optimizer")
        self._steps_until_blind -= 1
        if self._steps_until_blind == 0:
            _log.warning(
                "argus: optimizer steps, but no training forward pass of the attached model was seen, so "
                "forward and backward are missing; attach the module that the loop calls, in its thread"
            )
        self._mark_step()

    @_event
    def gradients_cleared(self) -> None:
        """An optimizer's gradients were cleared, at whatever point of the loop."""
        if not self._backward_done:
            return
        self._mark_step()
        if self._fetched_since_backward:  # the step was skipped, and the next batch is already here
            self._end_iteration()
            self._begin_iteration()
            self._fetches = 1

    def turn_off(self, reason: str) -> None:
        """Record nothing from now on, close what is open, and say so once."""
        if not self.off:
            self.reason = reason
            self.close()
            _log.warning("argus: tracing of the training loop is off: %s; training goes on", self.reason)

    def close(self) -> None:
        """Record nothing from now on, and close what is open."""
        self.off = True
        show(False)
        try:
            for name in reversed(self._open):
                self._phases[name].__exit__(None, None, None)
            for block in (self._iteration, self._pause):
                if block is not None:
                    block.__exit__(None, None, None)
        except Exception as error:
            self.reason = f"{self.reason}; {error}"
        self._open.clear()
        self._iteration = self._pause = None

    def _mark_step(self) -> None:
        self._step_done = True
        self._backward_done = False

    def _begin_iteration(self) -> None:
        if self._iteration is None and self._iterations:
            iteration = argus.iteration()
            iteration.__enter__()
            self._iteration = iteration

    def _end_iteration(self) -> None:
        self._step_done = False
        self._fetches = 0
        if self._iteration is not None:
            iteration, self._iteration = self._iteration, None
            iteration.__exit__(None, None, None)

    def _begin_pause(self) -> None:
        if self._pause is None:
            self._pause = argus.pause(EVALUATION)
            self._pause.__enter__()

    def _end_pause(self) -> None:
        if self._pause is not None:
            pause, self._pause = self._pause, None
            pause.__exit__(None, None, None)

    def _begin(self, name: str) -> None:
        if name not in self._open:
            self._phases[name].__enter__()
            self._open.append(name)

    def _end(self, name: str) -> None:
        if name in self._open:
            self._open.remove(name)
            self._phases[name].__exit__(None, None, None)

    def _close_stale(self) -> None:
        """Close what an exception inside backward has left open: its end is never called then."""
        self._end("grad_sync")
        self._end("backward")
