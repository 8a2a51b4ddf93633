"""Scenarios in which links are slow."""

from __future__ import annotations

from argus.drill.conditions import COMPUTE
from argus.drill.faults import Between, SlowAdapter, SlowEdge, SlowLink, SlowRanks
from argus.drill.scenario import Drill, ScenarioError, Settings, drill
from argus.drill.topology import Topology
from argus.drill.truth import SYMPTOMS, Claim, Truth


def _group(settings: Settings, group: str) -> Drill:
    claim = Claim.of("ArgusLinkDegraded", group=group, group_id=settings.named(group))
    return drill(settings, SlowLink(settings.topology, group, settings.rank, settings.factor), claim)


def ep(settings: Settings) -> Drill:
    return _group(settings, "ep")


def dp(settings: Settings) -> Drill:
    return _group(settings, "dp")


def _pair(topology: Topology, rank: int) -> str:
    """Name of the pair of a rank and its lane in the next stage."""
    following = topology.pipeline(rank)[(topology.stage(rank) + 1) % topology.pp]
    return "pp-{}-{}".format(*sorted((rank, following)))


def edge(settings: Settings) -> Drill:
    topology, rank = settings.topology, settings.rank
    if topology.pp < 2 or (topology.chunks == 1 and topology.stage(rank) == topology.pp - 1):
        raise ScenarioError(f"rank {rank} has no next stage; choose another with --rank")
    claim = Claim.of("ArgusLinkDegraded", group="pp", group_id=_pair(topology, rank))
    return drill(settings, SlowEdge(topology, rank, settings.factor), claim)


def leaving(topology: Topology, node: int) -> set[tuple[str, str]]:
    """(group, name) of all communicators with ranks on the node and elsewhere."""
    own = set(topology.ranks_of_node(node))
    found = set()
    for rank in own:
        for group in topology.lane_groups:
            members = topology.members(group, rank)
            if not own.issuperset(members):
                found.add((group, f"{group}-{members[0]}"))
        pipeline, stage = topology.pipeline(rank), topology.stage(rank)
        for neighbour in (stage - 1, stage + 1):
            if topology.chunks > 1 or 0 <= neighbour < topology.pp:
                other = pipeline[neighbour % topology.pp]
                if other not in own:
                    found.add(("pp", "pp-{}-{}".format(*sorted((rank, other)))))
    return found


def node(settings: Settings) -> Drill:
    """Any of the node's communicators may be named, and one must."""
    topology = settings.topology
    where = topology.node(settings.rank)
    names = leaving(topology, where)
    if not names:
        raise ScenarioError("nothing leaves a node of this job; give it more nodes with --per-node")
    claims = tuple(Claim.of("ArgusLinkDegraded", group=group, group_id=name) for group, name in sorted(names))
    fault = Between(SlowAdapter(topology, where, settings.factor), settings.since)
    return Drill((fault,), truth=Truth(may=SYMPTOMS, any_of=claims))


def and_straggler(settings: Settings) -> Drill:
    topology = settings.topology
    other = (settings.rank + topology.lanes) % topology.ranks
    name = settings.named("ep")
    if topology.pp < 2:
        raise ScenarioError("this scenario needs pp of at least 2")
    faults = (
        SlowLink(topology, "ep", settings.rank, settings.factor),
        SlowRanks(topology, (other,), COMPUTE, settings.factor),
    )
    claims = (
        Claim.of("ArgusLinkDegraded", group="ep", group_id=name),
        Claim.of("ArgusComputeStraggler", rank=other),
    )
    return Drill(tuple(Between(f, settings.since) for f in faults), truth=Truth(claims, SYMPTOMS))
