"""What is wrong during one iteration, as factors and seconds by rank and by communicator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from argus.drill.topology import Topology

Floats = npt.NDArray[np.float64]

COMPUTE = ("attention", "mlp", "backward", "optimizer")
"""Compute phases of the modelled job; attention and mlp make up the forward pass."""
STALLS = ("data_loading", "gc", "jit_compile")
"""Host phases; they hold a rank up before its iteration, jit_compile before its last backward."""


class Conditions:
    """Starts out healthy; faults change it.

    Attributes:
        compute: By compute phase, (stages, lanes): factor on its seconds.
        work: (micro-batches, lanes): factor on a pipeline's compute, the same on all stages.
        gaps: (stages, lanes): time between kernels, as a share of compute time.
        stalls: By host phase, (stages, lanes): seconds.
        links: For tp, cp, dp and ep, (stages, groups): factor on the transfer time.
        edges: (stages, lanes): factor on transfers to the next stage and back.
        clocks: (stages, lanes): the GPU's clock as a share of the usual one; its cost is in ``compute``.
        units: By compute phase, (stages, lanes): units of work that ranks report for an iteration.
        data_dependent: Compute phases that the job marks so.
    """

    def __init__(self, topology: Topology, gaps: float) -> None:
        shape = (topology.pp, topology.lanes)
        self.compute: dict[str, Floats] = {phase: np.ones(shape) for phase in COMPUTE}
        self.work: Floats = np.ones((topology.micro_batches, topology.lanes))
        self.gaps: Floats = np.full(shape, gaps)
        self.stalls: dict[str, Floats] = {phase: np.zeros(shape) for phase in STALLS}
        self.links: dict[str, Floats] = {
            group: np.ones((topology.pp, len(lanes))) for group, lanes in topology.lane_groups.items()
        }
        self.edges: Floats = np.ones(shape)
        self.clocks: Floats = np.ones(shape)
        self.units: dict[str, Floats] = {}
        self.data_dependent: set[str] = set()
