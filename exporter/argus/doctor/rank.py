"""Checks of the program that a rank would be: Python, extension, identity, settings."""

from __future__ import annotations

import difflib
import os
import platform
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata

from argus import _native
from argus.doctor.finding import Finding, note, ok, problem
from argus.nvtx import injection
from argus.tracer import launchers, stacks
from argus.tracer.identity import detect
from argus.tracer.kernels import misspelled_attribution
from argus.tracer.place import base_directory

_PREFIX = "ARGUS_"
VARIABLES = (
    "ARGUS_ALERTMANAGER",
    "ARGUS_CUPTI",
    "ARGUS_DIR",
    "ARGUS_DISABLE",
    "ARGUS_FLIGHT_EVENTS",
    "ARGUS_KERNELS",
    "ARGUS_KERNEL_ATTRIBUTION",
    "ARGUS_KERNEL_PATTERNS",
    "ARGUS_KERNEL_QUIET_SECONDS",
    "ARGUS_NODE",
    "ARGUS_NVTX_INIT",
    "ARGUS_NVTX_PATTERNS",
    "ARGUS_PROMETHEUS",
    "ARGUS_PROMTOOL",
    "ARGUS_ROLE",
    "ARGUS_RUN_ID",
    "ARGUS_STACKS",
    "ARGUS_STACK_PATTERNS",
    "ARGUS_STALLS",
)
"""Every variable that ARGUS reads."""

_FILES = ("ARGUS_CUPTI", "ARGUS_KERNEL_PATTERNS", "ARGUS_NVTX_PATTERNS", "ARGUS_STACK_PATTERNS")

_LAUNCHERS: dict[str, Callable[[launchers.Environment], launchers.Place | None]] = {
    "torchrun": launchers.torchrun,
    "MPI": launchers.mpi,
    "Slurm": launchers.slurm,
    "Kubernetes": launchers.kubernetes,
}


def python() -> Iterator[Finding]:
    """Versions, and whether they fit."""
    told = f"Python {platform.python_version()}, argus {_native.__version__} from {_native.__file__}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield problem(
            f"{told}: this build has no GIL, which the tracer needs", "use the standard build of Python"
        )
    else:
        yield ok(told)
    installed = _version("argus-gpu")
    if installed not in (None, _native.__version__):
        yield problem(
            f"the package says {installed}, its extension {_native.__version__}",
            "install argus-gpu again (pip install --force-reinstall)",
        )
    torch = _version("torch")
    yield ok(f"torch {torch}") if torch else note("torch is not installed for this Python")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def identity(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Who a rank started with this environment would be."""
    who = detect(environ)
    launcher = next((name for name, place in _LAUNCHERS.items() if place(environ)), None)
    size = "an unknown number" if who.world_size is None else who.world_size
    told = (
        f"rank {who.rank} of {size} ({launcher or 'no launcher found'}), node {who.node}, role "
        f"{who.role or 'pp<stage>'}, run {who.run_id} ({_run_source(environ, who.run_id)})"
    )
    if who.world_size is not None and who.rank >= who.world_size:
        yield problem(
            told, "ranks count from 0: correct the launcher's RANK or WORLD_SIZE, or what argus.init is given"
        )
    elif launcher is None:
        yield note(
            told, "run argus doctor inside the job, as the launcher starts a rank, to see what ranks see"
        )
    else:
        yield ok(told)
    if launchers.number(environ, "RANK") is not None and launchers.number(environ, "LOCAL_RANK") is None:
        yield note(
            "RANK is set without LOCAL_RANK, so it is taken for the number of a node or pod",
            "set LOCAL_RANK too, or call argus.init(rank=…)",
        )


def _run_source(environ: Mapping[str, str], run_id: str) -> str:
    named = ("ARGUS_RUN_ID", "SLURM_ARRAY_JOB_ID", "SLURM_HET_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID",
             "JOBSET_NAME", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")  # fmt: skip
    for variable in named:
        value = launchers.text(environ, variable)
        if value and run_id.startswith(value):
            return variable
    if not run_id.startswith("run-"):
        return "the pod's name"
    if launchers.text(environ, "MASTER_ADDR"):
        return "of master address, port and world size; ARGUS_RUN_ID gives it a name"
    return "of user, directory and program; ARGUS_RUN_ID gives it a name"


def settings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that are misspelled, or name what is not there."""
    given = sorted(name for name in environ if name.startswith(_PREFIX))
    complaints = [finding for name in given for finding in _setting(name, environ[name])]
    for trouble in (misspelled_attribution(environ), injection.trouble(environ)):
        if trouble:
            complaints.append(problem(trouble, "correct the variable, or unset it"))
    if trouble := stacks.settings(environ, base_directory()).complaint:
        complaints.append(note(trouble, "correct ARGUS_STACKS, or unset it"))
    complaints += _other_tools(environ)
    yield from complaints or [ok(", ".join(given) if given else "no variable ARGUS_… is set")]


def _setting(name: str, value: str) -> Iterator[Finding]:
    if name not in VARIABLES:
        endings = [known.removeprefix(_PREFIX) for known in VARIABLES]  # the beginning is no likeness
        near = difflib.get_close_matches(name.removeprefix(_PREFIX), endings, 1, 0.5)
        yield note(
            f"{name} is set, and nothing of ARGUS reads it",
            f"is {_PREFIX}{near[0]} meant?"
            if near
            else "unset it, or see docs/tracing.md for its right name",
        )
    elif name in _FILES and value and os.sep in value and not os.path.exists(value):
        yield problem(f"{name} names {value}, which is not there", "correct the path, or unset it")
    elif name == "ARGUS_DISABLE" and value.strip().lower() not in ("", "0", "false", "no"):
        yield note("ARGUS_DISABLE is set: ranks with this environment are not traced", "unset it")


def _other_tools(environ: Mapping[str, str]) -> Iterator[Finding]:
    path = environ.get("CUDA_INJECTION64_PATH", "")
    if not path:
        return
    if not os.path.exists(path):
        yield problem(
            f"CUDA_INJECTION64_PATH names {path}, which is not there", "correct the path, or unset it"
        )
    elif not path.endswith("libargus_kernels.so"):
        yield note(
            f"CUDA_INJECTION64_PATH loads another tool into CUDA: {path}",
            "while it uses CUPTI, kernels are not traced; unset it to trace them",
        )
