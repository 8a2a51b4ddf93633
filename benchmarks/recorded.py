"""Recorded traces of any size, in the ARGUS trace format, made from a seed.

A pipeline of ``STAGES`` stages and as many data-parallel replicas as the ranks
allow.  Waits are drawn, not derived from a schedule: these traces measure cost
and who is accused, not schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

STAGES = 4
MICRO_BATCHES = 16
ROWS = 4 * MICRO_BATCHES + 4
"""Rows per rank and iteration."""

PHASES = (
    "data_loading",
    "forward",
    "backward",
    "p2p-forward",
    "p2p-backward",
    "reduce_scatter",
    "all_gather",
    "optimizer",
)
KINDS = ("host", "compute", "communication")
_KIND = {"data_loading": 0, "forward": 1, "backward": 1, "optimizer": 1}


def iterations(
    ranks: int, count: int, slow: Mapping[int, float], seed: int = 0
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Columns of one iteration after the other; ``slow`` multiplies a rank's forward and backward.

    ``phase``, ``kind``, ``op``, ``group`` are indices into ``PHASES``, ``KINDS`` and so on.
    """
    random = np.random.default_rng(seed)
    names = ["data_loading", *["forward", "p2p-forward", "backward", "p2p-backward"] * MICRO_BATCHES]
    names += ["reduce_scatter", "optimizer", "all_gather"]
    phase = np.array([PHASES.index(name) for name in names])
    typical = np.array([0.002, 0.02, 0.04, 0.002, 0.002, 0.05, 0.01, 0.03])[phase]
    factor = np.ones((ranks, 1))
    for rank, times in slow.items():
        factor[rank] = times
    slowed = np.isin(phase, [PHASES.index("forward"), PHASES.index("backward")])
    end = 0.0
    for number in range(count):
        duration = typical * random.normal(1.0, 0.01, (ranks, ROWS)) * np.where(slowed, factor, 1.0)
        finish = np.cumsum(duration, axis=1)
        wall = float(finish[:, -1].max())
        duration[:, -3] += wall - finish[:, -1]  # everybody waits in the reduce-scatter
        start = end + np.cumsum(duration, axis=1) - duration
        yield {
            "rank": np.repeat(np.arange(ranks), ROWS),
            "iteration": np.full(ranks * ROWS, number),
            "phase": np.tile(phase, ranks),
            "start": start.reshape(-1),
            "duration": duration.reshape(-1),
        }
        end += wall


def write_parquet(path: Path, ranks: int, count: int, slow: Mapping[int, float], seed: int = 0) -> int:
    """Write a trace with a row group per iteration; return its number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    phases, kinds = pa.array(PHASES), pa.array(KINDS)
    kind_of = np.array([_KIND.get(name, 2) for name in PHASES])
    groups = pa.array(["", "pp", "dp"])
    group_of = np.array([0, 0, 0, 1, 1, 2, 2, 0])
    ids = pa.array([""] + [f"pp-{r}" for r in range(ranks)] + [f"dp-{stage}" for stage in range(STAGES)])
    ops = pa.array(["", *PHASES[3:7]])
    op_of = np.array([0, 0, 0, 1, 2, 3, 4, 0])
    roles = pa.array([f"pp{stage}" for stage in range(STAGES)])
    rows = 0
    writer = None
    for columns in iterations(ranks, count, slow, seed):
        phase, rank = columns["phase"], columns["rank"]
        stage = rank % STAGES
        group_id = np.select([group_of[phase] == 1, group_of[phase] == 2], [1 + rank, 1 + ranks + stage], 0)
        table = pa.table(
            {
                "rank": pa.array(rank, pa.int32()),
                "iteration": pa.array(columns["iteration"], pa.int64()),
                "phase": pa.DictionaryArray.from_arrays(pa.array(phase, pa.int32()), phases),
                "kind": pa.DictionaryArray.from_arrays(pa.array(kind_of[phase], pa.int32()), kinds),
                "start": columns["start"],
                "duration": columns["duration"],
                "role": pa.DictionaryArray.from_arrays(pa.array(stage, pa.int32()), roles),
                "pp": pa.array(stage, pa.int32()),
                "dp": pa.array(rank // STAGES, pa.int32()),
                "op": pa.DictionaryArray.from_arrays(pa.array(op_of[phase], pa.int32()), ops),
                "group": pa.DictionaryArray.from_arrays(pa.array(group_of[phase], pa.int32()), groups),
                "group_id": pa.DictionaryArray.from_arrays(pa.array(group_id, pa.int32()), ids),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer:
        writer.close()
    return rows
