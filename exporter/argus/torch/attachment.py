"""Attach tracing to the objects of a training loop, and take it off again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from torch.nn import Module
from torch.optim import Optimizer

import argus
from argus.torch import loaders, optimizers, pipelines
from argus.torch.collectives import trace_collectives
from argus.torch.communicators import ranks_of
from argus.torch.modules import TracedModel, is_caught
from argus.torch.parallel import mixed_kinds
from argus.torch.recorder import PHASE_KINDS, Recorder, show
from argus.tracer import session

_log = logging.getLogger("argus.torch")
_T = TypeVar("_T")

_recorder: Recorder | None = None
"""One per process, as there is one training loop; several `attach` calls share it."""

_users = 0


class Handle:
    """What one `attach` did.

    Attributes:
        dataloader: What the loop iterates over: the data loader as it was
            given (a list of them if a list was given), unless Python would not
            let its class be exchanged; then a wrapper that must be used in its
            place.
    """

    def __init__(self, recorder: Recorder | None, reason: str = "") -> None:
        self.dataloader: Any = None
        self._recorder = recorder
        self._reason = reason
        self._undo: list[Callable[[], None]] = []

    @property
    def active(self) -> bool:
        """Whether the loop is being recorded."""
        return self._recorder is not None and not self._recorder.off

    @property
    def reason(self) -> str:
        """Why it is not; empty while it is, and after `detach`."""
        return self._reason if self._recorder is None else self._recorder.reason

    @property
    def recorder(self) -> Recorder | None:
        """What an integration feeds with events; None where the loop is not recorded."""
        return self._recorder

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Have ``detach`` call this, the last one first."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Take everything off, and leave the recorder on."""
        while self._undo:
            self._undo.pop()()

    def absorb(self, other: Handle) -> None:
        """Hold what another `attach` did, too, so that one ``detach`` takes off both."""
        self._undo += other._undo
        other._undo = []
        self._reason = other._reason
        if self._recorder is None:
            self._recorder, other._recorder = other._recorder, None
        other.detach()

    def detach(self) -> None:
        """Take everything off again that this `attach` put on."""
        global _recorder, _users
        self.undo()
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            _users -= 1
            if not _users and recorder is _recorder:
                recorder.close()
                _recorder = None


def attach(
    model: Any = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    dataloader: Iterable[Any] | None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    iterations: bool = True,
    collectives: bool = True,
) -> Handle:
    """Trace a training loop: iterations, data_loading, forward, backward, grad_sync, optimizer.

    Calls ``argus.init()`` unless that was done.  Objects that are attached
    already are left alone.  Nothing that goes wrong later reaches the
    training: tracing turns itself off, says so in one line, and
    ``Handle.active`` and ``Handle.reason`` tell.

    Args:
        model: What the loop calls: a module, DDP around it, or what
            torch.compile made of either; a schedule of torch.distributed.pipelining;
            or several of them.
        optimizer: One or several.
        dataloader: The training data's iterable; a list or tuple of several
            (a list of batches must be attached inside a list).
        kinds: Kinds of phases where you know better than the defaults, such as
            ``{"forward": "compute"}`` for a model that never waits for another rank.
        iterations: False where the loop marks its own with ``argus.iteration()``.
        collectives: False to leave torch.distributed's collectives alone.

    Raises:
        TypeError: An argument is not what it should be.
    """
    schedules, models = _split(model)
    steppers = [optimizers.innermost(item) for item in _several(optimizer, Optimizer, "optimizer")]
    iterables = list(dataloader) if isinstance(dataloader, (list, tuple)) else [dataloader]
    chosen = _checked_kinds(kinds or {})
    handle = Handle(None)
    try:
        if not argus.status()["enabled"]:
            argus.init()
        if not argus.status()["enabled"]:  # switched off, or said why already
            return _inactive(dataloader)
        _learn_pipeline(schedules)
        if collectives:
            handle.on_detach(trace_collectives())
        chosen = {**mixed_kinds(_modules(schedules, models), steppers), **chosen}
        recorder = share_recorder(handle, chosen, iterations)
        for schedule in schedules:
            if not pipelines.is_traced(schedule):
                handle.on_detach(pipelines.trace(schedule, recorder))
        _attach(handle, recorder, models, steppers)
        traced = [_attach_iterable(handle, recorder, iterable) for iterable in iterables]
    except Exception as error:
        _log.warning("argus: the training loop is not traced: %s: %s", type(error).__name__, error)
        if _recorder is not None:
            _recorder.turn_off(f"attach failed: {error}")
        else:
            show(False)
        handle.undo()
        handle, traced = Handle(_recorder), iterables
    handle.dataloader = type(dataloader)(traced) if isinstance(dataloader, (list, tuple)) else traced[0]
    return handle


def share_recorder(handle: Handle, kinds: Mapping[str, str], iterations: bool) -> Recorder:
    """The process's recorder, which the handle holds from now on; for integrations, which feed it.

    Args:
        handle: Closes the recorder with its ``detach`` if nobody else holds it.
        kinds: Kinds that differ from the usual ones, by phase.
        iterations: Whether the recorder marks iterations.
    """
    global _recorder, _users
    if _recorder is None or _recorder.off:
        _recorder, _users = Recorder(kinds, iterations), 0
    elif not _recorder.has_kinds(kinds):
        _log.warning("argus: phases keep the kinds of the first attach; attach all models in one call")
    handle._recorder = _recorder
    _users += 1
    return _recorder


def _inactive(dataloader: Any) -> Handle:
    handle = Handle(None, str(argus.status()["reason"]))
    handle.dataloader = dataloader
    return handle


def _attach(
    handle: Handle, recorder: Recorder, models: Sequence[Module], steppers: Sequence[Optimizer]
) -> None:
    traced = [TracedModel(model, recorder) for model in models if not is_caught(model)]
    handle._undo += [model.detach for model in traced]

    def after_step() -> None:
        for model in traced:
            model.catch()

    for stepper in steppers:
        if not optimizers.is_traced(stepper):
            handle.on_detach(optimizers.trace(stepper, recorder, after_step))


def _attach_iterable(handle: Handle, recorder: Recorder, iterable: Any) -> Any:
    if iterable is None or loaders.is_traced(iterable):
        return iterable
    traced, undo = loaders.trace(iterable, recorder)
    handle.on_detach(undo)
    if traced is not iterable:
        _log.warning(
            "argus: %s can't be traced in place; iterate over the `dataloader` of what attach returns",
            type(iterable).__name__,
        )
    return traced


def _split(value: Any) -> tuple[list[Any], list[Module]]:
    """Pipeline schedules and modules."""
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    schedules = [item for item in given if pipelines.is_schedule(item)]
    rest = [item for item in given if item is not None and not pipelines.is_schedule(item)]
    return schedules, _several(rest, Module, "model")


def _modules(schedules: Sequence[Any], models: Sequence[Module]) -> list[Module]:
    """What is trained, also inside the stages of pipelines."""
    return [*models, *(stage.submod for schedule in schedules for stage in pipelines.stages(schedule))]


def _learn_pipeline(schedules: Sequence[Any]) -> None:
    """Which stage this rank runs: the sizes that `argus.init` was given may not tell."""
    running = session.current()
    if schedules and running is not None:
        stage = pipelines.stages(schedules[0])[0]
        ranks = ranks_of(stage.group) if stage.group is not None else range(stage.group_size)
        running.topology.learn_pipeline(ranks, stage.group_rank)
        running.identify()


def _several(value: Any, kind: type[_T], name: str) -> list[_T]:
    values = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    for item in values:
        if not isinstance(item, kind):
            raise TypeError(f"{name} must be a torch {kind.__name__} or several, not {type(item).__name__}")
    return values


def _checked_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    for name, kind in kinds.items():
        if name not in PHASE_KINDS or kind not in ("compute", "host", "communication", "mixed"):
            raise TypeError(f"kinds: {name!r}: {kind!r}; phases are {', '.join(PHASE_KINDS)}")
    return dict(kinds)
