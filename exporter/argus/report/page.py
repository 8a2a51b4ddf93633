"""From a document to one HTML file."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from argus.report.figures import Picture, pictures
from argus.report.heat import excess
from argus.report.model import Document
from argus.report.words import alike, grouped, numbers, rank_number, rank_order, seconds

_TABLE_ROWS = 20
_CLUSTERS = 40
_OTHERS = 24
_LEAST_PERCENT = 0.5


@dataclass(frozen=True)
class Row:
    """A rank in a phase, in words."""

    rank: str
    role: str
    node: str
    phase: str
    own: str
    peers: str
    factor: str
    share: str
    accused: bool


def render(document: Document) -> str:
    """The page; everything that it needs is in it."""
    environment = Environment(
        loader=PackageLoader("argus.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = seconds
    template = environment.get_template("report.html.j2")
    drawn = pictures(document)
    clusters = alike(grouped(document.findings))
    return template.render(
        document=document,
        name=document.axis.name,
        facts=_facts(document),
        clusters=clusters[:_CLUSTERS],
        more=max(0, len(clusters) - _CLUSTERS),
        others=_OTHERS,
        pictures=drawn,
        numbered=list(enumerate(drawn)),
        rows=_rows(document),
        trace=_trace(document),
        made=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    )


def _facts(document: Document) -> list[tuple[str, str]]:
    """The figures at the top, by name."""
    typical = float(np.median(document.iteration.values))
    facts = [
        ("Ranks", f"{len(document.ranks)} of {document.world_size}"),
        ("Iteration", seconds(typical)),
    ]
    if document.onset is not None:
        facts.append(("Since", document.axis.name(document.onset)))
    if document.slowdown is not None:
        facts.append(("Slowdown", f"{document.slowdown:.2f} times"))
    if document.lost_gpu_hours is not None:
        hours = document.lost_gpu_hours
        facts.append(
            ("Lost to imbalance", f"{hours:.1f} GPU-hours" if hours >= 1 else f"{hours:.3f} GPU-hours")
        )
    return facts


def _rows(document: Document) -> list[Row]:
    """The ranks that lose most time to their own work, the worst first."""
    ranks, phases = document.ranks, document.phases
    table = np.nan_to_num(excess(document), nan=-1.0)
    accused = {(f.rank, f.labels.get("phase")) for f in document.accused}
    rows = []
    for flat in np.argsort(-table, axis=None, kind="stable")[: 4 * _TABLE_ROWS]:
        rank, phase = divmod(int(flat), table.shape[1])
        name = (ranks.numbers[rank], phases.names[phase])
        if table[rank, phase] < _LEAST_PERCENT and name not in accused:
            continue
        own, peers = phases.seconds[rank, phase], phases.reference[rank, phase]
        rows.append(
            Row(
                rank=ranks.numbers[rank],
                role=ranks.roles[rank],
                node=ranks.nodes[rank],
                phase=phases.names[phase],
                own=seconds(own),
                peers=seconds(peers),
                factor=f"{own / peers:.2f}" if peers > 0 else "",
                share="unknown" if table[rank, phase] < 0 else f"{table[rank, phase]:.1f} %",
                accused=name in accused,
            )
        )
    return rows[:_TABLE_ROWS]


def _trace(document: Document) -> str:
    """The command that shows what the accused ranks did last; empty where there is nobody, or no live job."""
    if document.axis.iterations is not None or not document.culprits:
        return ""
    ranks = sorted(filter(lambda text: rank_number(text) is not None, document.culprits), key=rank_order)[:8]
    if not ranks:
        return ""
    nodes = {
        node
        for number, node in zip(document.ranks.numbers, document.ranks.nodes, strict=True)
        if number in ranks and node
    }
    exporters = " ".join(f"--exporter {shlex.quote(f'{node}:9733')}" for node in sorted(nodes))
    command = f"argus trace --ranks {numbers(ranks).replace(' ', '')} {exporters} -o suspects.pftrace.gz"
    return " ".join(command.split())


__all__ = ["Picture", "render"]
