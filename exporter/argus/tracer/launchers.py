"""What launchers and schedulers say in the environment about a rank.

Each function reads a mapping of environment variables and returns what it
knows.  Sources: torch.distributed.run (torchrun), Slurm's srun and sbatch
manuals, Open MPI, MPICH/Intel MPI (Hydra) and MVAPICH2 documentation,
Kubernetes Indexed Jobs, JobSet, Kubeflow's PyTorchJob and TrainJob.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Environment = Mapping[str, str]

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Slurm numbers its batch, extern and interactive steps from the end of u32: no srun launched them."""


@dataclass(frozen=True)
class Place:
    """Where a launcher put this process; None: it does not say."""

    rank: int
    world_size: int | None
    local_rank: int | None = None
    ranks_per_node: int | None = None


def number(environ: Environment, *names: str) -> int | None:
    """The first of the variables that holds a decimal number >= 0."""
    for name in names:
        value = environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def text(environ: Environment, *names: str) -> str | None:
    """The first of the variables that says something; launchers write ``none`` for nothing."""
    for name in names:
        value = environ.get(name, "").strip()
        if value and value.lower() not in ("none", "null"):
            return value
    return None


def torchrun(environ: Environment) -> Place | None:
    """RANK, trusted only with LOCAL_RANK: others set RANK to the node's number."""
    rank, local_rank = number(environ, "RANK"), number(environ, "LOCAL_RANK")
    if rank is None or local_rank is None:
        return None
    return Place(rank, number(environ, "WORLD_SIZE"), local_rank, number(environ, "LOCAL_WORLD_SIZE"))


def mpi(environ: Environment) -> Place | None:
    """Open MPI, MVAPICH2, MPICH and Intel MPI.

    Asked before Slurm, whose SLURM_PROCID is the daemon's number under mpirun.
    """
    for rank, size, local, per_node in (
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
        (
            "MV2_COMM_WORLD_RANK",
            "MV2_COMM_WORLD_SIZE",
            "MV2_COMM_WORLD_LOCAL_RANK",
            "MV2_COMM_WORLD_LOCAL_SIZE",
        ),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ):
        found = number(environ, rank)
        if found is not None and number(environ, size) is not None:
            return Place(found, number(environ, size), number(environ, local), number(environ, per_node))
    return None


def slurm(environ: Environment) -> Place | None:
    """A task that srun launched.

    The batch script and interactive shells carry SLURM_PROCID=0 and the
    allocation's SLURM_NTASKS as well, though nobody launched that many.
    """
    rank, step = number(environ, "SLURM_PROCID"), number(environ, "SLURM_STEP_ID", "SLURM_STEPID")
    if rank is None or step is None or step >= _FIRST_SPECIAL_STEP:
        return None
    uniform = re.fullmatch(r"(\d+)(\(x\d+\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    return Place(
        rank,
        number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        number(environ, "SLURM_LOCALID"),
        int(uniform[1]) if uniform else None,
    )


def kubernetes(environ: Environment) -> Place | None:
    """A pod of an indexed job that runs one process; with more the launcher inside must say."""
    if "KUBERNETES_SERVICE_HOST" not in environ:
        return None
    if (number(environ, "PET_NPROC_PER_NODE", "NPROC_PER_NODE") or 1) > 1:
        return None
    rank = number(environ, "RANK", "PET_NODE_RANK", "JOB_COMPLETION_INDEX")
    if rank is None:
        return None
    return Place(rank, number(environ, "WORLD_SIZE", "PET_NNODES"), 0, 1)


def slurm_run(environ: Environment) -> str | None:
    """The job as squeue shows it: an array's task, the leader of a heterogeneous job, or the job."""
    array, task = text(environ, "SLURM_ARRAY_JOB_ID"), text(environ, "SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return text(environ, "SLURM_HET_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID")


def kubernetes_run(environ: Environment, hostname: str) -> str | None:
    """The name of the JobSet, PyTorchJob, TrainJob or Indexed Job."""
    named = text(environ, "JOBSET_NAME")
    if named or "KUBERNETES_SERVICE_HOST" not in environ:
        return named
    for name in (hostname, environ.get("PET_MASTER_ADDR", ""), environ.get("MASTER_ADDR", "")):
        # PyTorchJob: <job>-master-0, <job>-worker-3; TrainJob: <job>-node-0-3
        match = re.match(r"(.+?)-(?:(?:master|worker)-\d+|node-\d+-\d+)(?:\..*)?\Z", name)
        if match:
            return match[1]
    index = text(environ, "JOB_COMPLETION_INDEX")
    if index and hostname.endswith(f"-{index}"):
        return hostname[: -len(index) - 1]
    return None


def attempt(environ: Environment) -> int:
    """How often the job was restarted: by the scheduler, and by torchrun since."""
    scheduler = number(environ, "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT") or 0
    return scheduler + (number(environ, "TORCHELASTIC_RESTART_COUNT") or 0)
