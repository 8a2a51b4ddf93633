"""The tracer's life in this process: init, finish, and what happens when it can't.

Whatever goes wrong in here turns tracing off, says so once in one line, and
leaves training as it is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from argus import _native
from argus.nvtx import injection
from argus.stalls.watch import Watch
from argus.tracer import arguments, gpu, kernels, stacks
from argus.tracer.arguments import ArgumentError
from argus.tracer.cost import cost_of_a_phase
from argus.tracer.ending import Ending
from argus.tracer.flight import sizes as flight_sizes
from argus.tracer.identity import Identity, detect
from argus.tracer.parallel import Coordinates, Layout
from argus.tracer.place import PlaceError, base_directory, create_segment
from argus.tracer.topology import Topology

_log = logging.getLogger("argus")

_reported: set[str] = set()
_off_reason = "argus.init() was not called"
_session: _Session | None = None
_starting = threading.Lock()


def report(text: str) -> None:
    """Tell the user, once."""
    if text not in _reported and len(_reported) < 64:
        _reported.add(text)
        with suppress(Exception):  # the program's own filters and handlers may raise
            _log.warning("argus: %s", text)


@dataclass
class _Session:
    """A running tracer."""

    identity: Identity
    topology: Topology
    segment: _native.Segment
    pid: int
    ending: Ending | None = None
    stalls: Watch | None = None
    gpu_known: bool = False

    def resolve(self, group: str, peer: int | None) -> tuple[str, int, int]:
        """Names a communicator, for the tracer."""
        return self.topology.communicator(group, peer)

    def iterated(self, _count: int) -> None:
        """Called after each of the first iterations: Megatron or CUDA may have come up since."""
        if self.topology.refresh():
            self.identify()
        if not self.gpu_known and (found := gpu.find()) is not None:
            self.gpu_known = True
            self.segment.identify(gpu_uuid=found.uuid, pci_bus_id=found.pci_bus_id)

    def identify(self) -> None:
        """Tell the segment that coordinates are known better now."""
        self.segment.identify(role=self.topology.role, **asdict(self.topology.coordinates))
        _native.refresh()


def init(
    *,
    run_id: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    node: str | None = None,
    role: str | None = None,
    attempt: int | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    context_parallel: int = 1,
    expert_parallel: int = 1,
    expert_tensor_parallel: int | None = None,
    order: str = "tp-cp-ep-dp-pp",
    coordinates: Mapping[str, int] | None = None,
) -> None:
    """Start tracing this rank. Never raises; where it can't, one line says why and training goes on.

    Without arguments, who this rank is comes from torch.distributed, torchrun,
    Slurm, Kubernetes or MPI.

    Args:
        run_id: The training job, the same in all its ranks and restarts.
        rank: Global rank.
        world_size: Number of ranks in the run.
        local_rank: Rank on this node.
        node: Name of this node.
        role: The work this rank does; ranks of equal role are compared. None: ``pp<stage>``.
        attempt: How often the run was restarted.
        tensor_parallel, pipeline_parallel, context_parallel, expert_parallel:
            Sizes, from which the coordinates are derived; the data-parallel size is
            what remains, so that by default all ranks are copies. Not needed with Megatron.
        expert_tensor_parallel: Tensor-parallel size of expert layers, None: the same.
        order: Which dimension varies fastest, first; Megatron's names.
        coordinates: This rank's ``dp``, ``tp``, ``pp``, ``cp``, ``ep``, where the
            sizes don't say (device meshes of other shapes).
    """
    # Never waited for: a process forked in the middle of it finds it locked.
    if (_session is not None and _session.pid == os.getpid()) or not _starting.acquire(blocking=False):
        report("argus.init() was called again; the first call stands")
        return
    try:
        obstacle = _obstacle()
        if obstacle is not None:
            _turn_off(obstacle)
            return
        identity = detect(
            os.environ,
            run_id=arguments.text("run_id", run_id),
            rank=arguments.number("rank", rank),
            world_size=arguments.number("world_size", world_size, least=1),
            local_rank=arguments.number("local_rank", local_rank),
            node=arguments.text("node", node),
            role=arguments.text("role", role),
            attempt=arguments.number("attempt", attempt),
        )
        sizes = {
            "tp": arguments.number("tensor_parallel", tensor_parallel),
            "pp": arguments.number("pipeline_parallel", pipeline_parallel),
            "cp": arguments.number("context_parallel", context_parallel),
            "ep": arguments.number("expert_parallel", expert_parallel),
            "etp": arguments.number("expert_tensor_parallel", expert_tensor_parallel),
        }
        order = arguments.text("order", order) or "tp-cp-ep-dp-pp"
        _start(identity, Topology(identity, _layout(identity, sizes, order), _given(coordinates)))
    except (PlaceError, ArgumentError) as error:
        _turn_off(str(error))
    except Exception as error:
        _turn_off(f"{type(error).__name__}: {error}; please report it with this line")
    finally:
        _starting.release()


def _obstacle() -> str | None:
    """Why there is nothing to start; empty: as the user wishes."""
    if os.environ.get("ARGUS_DISABLE", "").strip().lower() not in ("", "0", "false", "no"):
        return ""
    if _session is not None:
        return "this process was forked from a traced one; start the other ranks before argus.init()"
    if "t" in sys.abiflags:
        return "this Python runs without the GIL, which the tracer needs; use the standard build"
    return None


def _layout(identity: Identity, sizes: dict[str, Any], order: str) -> Layout | None:
    """None where nothing is known to derive coordinates from."""
    if identity.world_size is None:
        return None
    try:
        return Layout(identity.world_size, order=order, **sizes)
    except ValueError as error:
        report(f"no parallel coordinates: {error}; pass argus.init() the sizes of the job")
        return None


def _given(values: Mapping[str, int] | None) -> Coordinates | None:
    coordinates = arguments.numbers("coordinates", values)
    if coordinates is None:
        return None
    unknown = set(coordinates) - {"dp", "tp", "pp", "cp", "ep"}
    if unknown:
        report(f"coordinates are dp, tp, pp, cp, ep; {', '.join(sorted(unknown))} left out")
    return Coordinates(**{name: value for name, value in coordinates.items() if name not in unknown})


def _start(identity: Identity, topology: Topology) -> None:
    global _session, _off_reason
    cost = cost_of_a_phase()
    topology.refresh()
    kernels_off = kernels.start()
    if kernels_off:
        report(f"kernel tracing is off: {kernels_off}")
    flight = flight_sizes(os.environ, base_directory())
    sampling = stacks.settings(os.environ, base_directory())
    segment = create_segment(
        run_id=identity.run_id,
        rank=identity.rank,
        role=topology.role,
        node=identity.node,
        local_rank=identity.local_rank,
        world_size=identity.world_size,
        attempt=identity.attempt,
        flight_events=flight.events,
        flight_kernels=flight.kernels,
        stacks=bool(sampling.hz),
        **asdict(topology.coordinates),
    )
    session = _Session(identity, topology, segment, os.getpid())
    try:
        _native.configure(resolve=session.resolve, iterated=session.iterated)
        _native.start(segment, cost_per_event=cost)
    except BaseException:
        segment.close("ended")
        raise
    _session = session
    _off_reason = ""
    sampler = stacks.start(segment, sampling, os.environ)
    complaints = (flight.complaint, sampling.complaint, sampler, injection.trouble())
    for complaint in (*complaints, kernels.misspelled_attribution(os.environ)):
        if complaint:
            report(complaint)
    session.ending = Ending(finish)
    session.stalls = Watch(report, os.environ)


def current() -> _Session | None:
    """The running tracer of this process, for integrations."""
    session = _session
    return session if session is not None and session.pid == os.getpid() else None


def _turn_off(reason: str) -> None:
    global _off_reason
    _off_reason = reason or "ARGUS_DISABLE is set"
    if reason:
        report(f"tracing is off: {reason}")


def finish() -> None:
    """Stop tracing: the rank ended well, and its series go away. Called at exit by itself."""
    global _session, _off_reason
    session = _session
    if session is None or session.pid != os.getpid():
        return
    _session = None
    _off_reason = "argus.finish() was called"
    failed = session.ending is not None and session.ending.failed
    try:
        if session.ending is not None:
            session.ending.forget()
        if session.stalls is not None:
            session.stalls.close()
        _native.stacks_stop()
        _native.stop("failed" if failed else "ended")
    except Exception as error:
        report(f"the end of tracing failed: {error}")


def status() -> dict[str, Any]:
    """What the tracer is doing: ``enabled``, else the ``reason``; identity and counts."""
    session = _session
    counts = _native.status()
    enabled = bool(counts.pop("active")) and session is not None
    if session is None or session.pid != os.getpid():
        return {"enabled": False, "reason": _off_reason or "this process was forked from a traced one"}
    reason = "" if enabled else "the segment file was truncated by another program"
    return {
        "enabled": enabled,
        "reason": reason,
        "run_id": session.identity.run_id,
        "rank": session.identity.rank,
        "world_size": session.identity.world_size,
        "role": session.topology.role,
        "node": session.identity.node,
        **asdict(session.topology.coordinates),
        "segment": session.segment.path,
        "kernels": _native.kernels_status(),
        "nvtx": _native.nvtx_status(),
        "stacks": _native.stacks_status(),
        **counts,
    }
