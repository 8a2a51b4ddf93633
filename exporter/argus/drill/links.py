"""Scenarios in which links are slow."""

from __future__ import annotations

from collections import Counter

from argus.drill.conditions import COMPUTE
from argus.drill.faults import Between, SlowAdapter, SlowEdge, SlowLink, SlowRanks
from argus.drill.scenario import Drill, ScenarioError, Settings, drill
from argus.drill.topology import Topology
from argus.drill.truth import SYMPTOMS, Claim, Truth

LIKE = 3
PAST = 2400.0
"""Like communicators that the rules need to compare; seconds of a past that is long enough otherwise."""


def _pair(topology: Topology, rank: int) -> list[int]:
    """A rank and its lane in the next stage (of the last stage: in the first)."""
    following = topology.pipeline(rank)[(topology.stage(rank) + 1) % topology.pp]
    return sorted((rank, following))


def communicators(topology: Topology) -> dict[tuple[str, str], list[int]]:
    """Members of all communicators of the job by (group, name), those of a single rank left out."""
    found = {}
    for rank in range(topology.ranks):
        for group in topology.lane_groups:
            members = topology.members(group, rank)
            if members[0] == rank and len(members) > 1:
                found[group, f"{group}-{rank}"] = members
        pair = _pair(topology, rank)
        last = topology.stage(rank) == topology.pp - 1
        if pair[0] != pair[1] and (topology.chunks > 1 or not last):
            found["pp", f"pp-{pair[0]}-{pair[1]}"] = pair
    return found


def _judged(settings: Settings, slow: set[tuple[str, str]]) -> tuple[Claim, ...]:
    """Claims about those of the slow communicators that can be told.

    Raises:
        ScenarioError: None can be: there are too few like them, or most are slow as well.
    """
    topology = settings.topology
    everyone = communicators(topology)

    def kind(key: tuple[str, str]) -> tuple[object, ...]:
        members = everyone[key]
        # Payloads differ from stage to stage; where they are not known, only a stage's are alike.
        stage = topology.stage(members[0]) if key[0] != "pp" and not settings.bytes_known else -1
        return (key[0], topology.spans(members), stage)

    like = Counter(map(kind, everyone))
    bad = Counter(map(kind, slow))
    told = {key for key in slow if like[kind(key)] >= LIKE and bad[kind(key)] * 2 < like[kind(key)]}
    if settings.since >= PAST:
        told |= {key for key in slow if like[kind(key)] < LIKE and settings.bytes_known}
    if not told:
        raise ScenarioError(
            "too few communicators of this job are like the slow ones to compare them: choose a larger job, "
            f"or, where they are fewer than {LIKE}, let the fault begin later (--since {PAST:g})"
        )
    return tuple(Claim.of("ArgusLinkDegraded", group=group, group_id=name) for group, name in sorted(told))


def _group(settings: Settings, group: str) -> tuple[SlowLink, tuple[Claim, ...]]:
    topology = settings.topology
    members = topology.members(group, settings.rank)
    if len(members) < 2:
        raise ScenarioError(f"this scenario needs {group} of at least 2")
    claims = _judged(settings, {(group, f"{group}-{members[0]}")})
    return SlowLink(topology, group, settings.rank, settings.factor), claims


def ep(settings: Settings) -> Drill:
    fault, claims = _group(settings, "ep")
    return drill(settings, fault, *claims)


def dp(settings: Settings) -> Drill:
    fault, claims = _group(settings, "dp")
    return drill(settings, fault, *claims)


def edge(settings: Settings) -> Drill:
    topology, rank = settings.topology, settings.rank
    if topology.pp < 2 or (topology.chunks == 1 and topology.stage(rank) == topology.pp - 1):
        raise ScenarioError(f"rank {rank} has no next stage; choose another with --rank")
    claims = _judged(settings, {("pp", "pp-{}-{}".format(*_pair(topology, rank)))})
    return drill(settings, SlowEdge(topology, rank, settings.factor), *claims)


def leaving(topology: Topology, node: int) -> set[tuple[str, str]]:
    """(group, name) of all communicators with ranks on the node and elsewhere."""
    own = set(topology.ranks_of_node(node))
    return {
        key
        for key, members in communicators(topology).items()
        if not own.isdisjoint(members) and not own.issuperset(members)
    }


def node(settings: Settings) -> Drill:
    """Any of the node's communicators may be named, and one of those that can be told must."""
    topology = settings.topology
    where = topology.node(settings.rank)
    names = leaving(topology, where)
    if not names:
        raise ScenarioError("nothing leaves a node of this job; give it more nodes with --per-node")
    may = tuple(Claim.of("ArgusLinkDegraded", group=group, group_id=name) for group, name in sorted(names))
    fault = Between(SlowAdapter(topology, where, settings.factor), settings.since)
    return Drill((fault,), truth=Truth(may=(*SYMPTOMS, *may), any_of=_judged(settings, names)))


def and_straggler(settings: Settings) -> Drill:
    topology = settings.topology
    other = (settings.rank + topology.lanes) % topology.ranks
    if topology.pp < 2:
        raise ScenarioError("this scenario needs pp of at least 2")
    link, claims = _group(settings, "ep")
    faults = (link, SlowRanks(topology, (other,), COMPUTE, settings.factor))
    truth = Truth((*claims, Claim.of("ArgusComputeStraggler", rank=other)), SYMPTOMS)
    return Drill(tuple(Between(fault, settings.since) for fault in faults), truth=truth)
