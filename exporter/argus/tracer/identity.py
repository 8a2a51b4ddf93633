"""Who this rank is: run, rank, node, role.

Arguments come first, then ``ARGUS_*`` variables, then what is known for sure.

- Rank: torch.distributed where it is initialised, torchrun, MPI, srun, a pod's
  index, else 0 of 1.
- Run: the Slurm job, the JobSet or Kubeflow job, torchrun's rendezvous id, the
  MPI job, else a hash of master address, port and world size, else of node,
  user, directory and program: stable when a job is started again, never empty,
  never ``none``.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from dataclasses import dataclass

from argus.tracer import launchers
from argus.tracer.launchers import Environment, Place

_LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0")


@dataclass(frozen=True)
class Identity:
    """One rank; None where nobody says."""

    run_id: str
    rank: int
    world_size: int | None
    local_rank: int | None
    ranks_per_node: int | None
    attempt: int
    node: str
    role: str | None


def detect(
    environ: Environment,
    *,
    run_id: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    node: str | None = None,
    role: str | None = None,
    attempt: int | None = None,
    hostname: str | None = None,
) -> Identity:
    """Identity from arguments and environment.

    Args:
        environ: Environment variables.
        hostname: Of this machine or pod; None: ask the system.
        Everything else: what the caller knows; None: find out.
    """
    hostname = hostname or socket.gethostname()
    place = _place(environ)
    if rank is not None:
        known = place if place.rank == rank else Place(rank, place.world_size)
        place = Place(rank, known.world_size, known.local_rank, known.ranks_per_node)
    node = node or launchers.text(environ, "ARGUS_NODE", "NODE_NAME", "SLURMD_NODENAME") or hostname
    world_size = world_size if world_size is not None else place.world_size
    return Identity(
        run_id=_given(run_id) or _run_id(environ, hostname, node, world_size),
        rank=place.rank,
        world_size=world_size,
        local_rank=local_rank if local_rank is not None else place.local_rank,
        ranks_per_node=place.ranks_per_node,
        attempt=attempt if attempt is not None else launchers.attempt(environ),
        node=node,
        role=role or launchers.text(environ, "ARGUS_ROLE"),
    )


def _given(run_id: str | None) -> str | None:
    return launchers.text({"run_id": run_id or ""}, "run_id")


def _torch_distributed() -> Place | None:
    """The process group, where the program has made one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Place(distributed.get_rank(), distributed.get_world_size())


def _place(environ: Environment) -> Place:
    launched = next(
        filter(
            None,
            (
                find(environ)
                for find in (launchers.torchrun, launchers.mpi, launchers.slurm, launchers.kubernetes)
            ),
        ),
        None,
    )
    group = _torch_distributed()
    if group is not None:
        same = launched is not None and launched.rank == group.rank
        local = launched.local_rank if launched and same else launchers.number(environ, "LOCAL_RANK")
        return Place(group.rank, group.world_size, local, launched.ranks_per_node if launched else None)
    return launched or Place(0, 1, 0, 1)


def _run_id(environ: Environment, hostname: str, node: str, world_size: int | None) -> str:
    named = (
        launchers.text(environ, "ARGUS_RUN_ID")
        or launchers.slurm_run(environ)
        or launchers.kubernetes_run(environ, hostname)
        or launchers.text(environ, "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
    )
    if named:
        return named
    address = launchers.text(environ, "MASTER_ADDR")
    if address:
        # Every machine has its own localhost.
        where = node if address.startswith(_LOOPBACK) else ""
        return "run-" + _hash(address, environ.get("MASTER_PORT", ""), str(world_size), where)
    where = node if world_size == 1 else ""
    program = sys.argv[0] if sys.argv else ""
    try:
        directory = os.getcwd()
    except OSError:  # it was removed
        return "run-" + _hash(where, str(os.getuid()), "", program or "-")
    return "run-" + _hash(where, str(os.getuid()), directory, os.path.abspath(program or "-"))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:10]
