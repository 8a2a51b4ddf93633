"""The catalogue of scenarios."""

from __future__ import annotations

from argus.drill import links
from argus.drill.conditions import COMPUTE
from argus.drill.faults import (
    AllSlow,
    Between,
    HostBound,
    Overheated,
    SkewedWork,
    SlowRanks,
    SlowStage,
    Stall,
    Stop,
    UnevenWork,
)
from argus.drill.scenario import Drill, Scenario, ScenarioError, Settings, drill
from argus.drill.topology import Topology
from argus.drill.truth import SYMPTOMS, Claim, Truth

_GC_EVERY = 20
_JIT_EVERY = 10
_SPEED_PERIOD = 211.0
"""Seconds of a change of speed: not a multiple of the usual scrape intervals."""
_INTERMITTENT = 240.0
_RESTART = 80.0
_CHECKPOINT = 300.0


def healthy(settings: Settings) -> Drill:
    return Drill()


def straggler(settings: Settings) -> Drill:
    fault = SlowRanks(settings.topology, (settings.rank,), COMPUTE, settings.factor)
    return drill(settings, fault, Claim.of("ArgusComputeStraggler", rank=settings.rank))


def overheated(settings: Settings) -> Drill:
    fault = Overheated(settings.topology, (settings.rank,), settings.factor)
    return drill(
        settings,
        fault,
        Claim.of("ArgusComputeStraggler", rank=settings.rank),
        Claim.of("ArgusGpuThrottled", rank=settings.rank),
    )


def bubble(settings: Settings) -> Drill:
    topology = settings.topology
    if topology.pp < 2 or topology.dp < 2:
        raise ScenarioError("this scenario needs pp and dp of at least 2")
    if topology.ep > 1:
        raise ScenarioError("expert groups couple the pipelines; this scenario needs ep of 1")
    return drill(
        settings,
        SlowRanks(topology, (settings.rank,), ("backward",), settings.factor),
        Claim.of("ArgusComputeStraggler", rank=settings.rank, phase="backward"),
        Claim.of("ArgusPipelineBubbleAmplified", dp=settings.dp),
    )


def masked(settings: Settings) -> Drill:
    """A quarter of an expert group, in its middle: with 12,960 ranks those of the paper."""
    topology = settings.topology
    if topology.ep < 4:
        raise ScenarioError("this scenario needs ep of at least 4")
    stage = min(7, topology.pp - 1)
    group = min(8, topology.dp * topology.cp // topology.ep - 1)
    first = stage * topology.lanes + (group * topology.ep + topology.ep // 2) * topology.tp
    ranks = tuple(range(first, first + max(1, topology.ep // 4) * topology.tp))
    return drill(
        settings,
        SlowRanks(topology, ranks, ("mlp",), settings.factor),
        *(Claim.of("ArgusComputeStraggler", rank=rank, phase="mlp") for rank in ranks),
    )


def host_bound(settings: Settings) -> Drill:
    share = settings.profile.gaps * settings.factor
    fault = HostBound(settings.topology, (settings.rank,), share)
    return drill(settings, fault, Claim.of("ArgusHostStall", rank=settings.rank, phase="gpu_idle"))


def data_loading(settings: Settings) -> Drill:
    seconds = settings.factor * settings.profile.iteration
    fault = Stall(settings.topology, "data_loading", seconds, (settings.rank,))
    return drill(settings, fault, Claim.of("ArgusHostStall", rank=settings.rank, phase="data_loading"))


def garbage_collection(settings: Settings) -> Drill:
    seconds = settings.factor * settings.profile.iteration
    fault = Stall(settings.topology, "gc", seconds, every=_GC_EVERY)
    return drill(settings, fault, Claim.of("ArgusIterationJitter"))


def jit(settings: Settings) -> Drill:
    usual = settings.profile.shares["backward"] * settings.profile.step(settings.topology)
    fault = Stall(
        settings.topology, "jit_compile", settings.factor * usual, (settings.rank,), every=_JIT_EVERY
    )
    return drill(settings, fault, Claim.of("ArgusJitBlocking", rank=settings.rank))


def uneven_stages(settings: Settings) -> Drill:
    stages = settings.topology.pp
    if stages < 2:
        raise ScenarioError("this scenario needs pp of at least 2")
    fault = SlowStage(stages - 1, settings.factor)
    return drill(settings, fault, Claim.of("ArgusStageImbalance", role=f"pp{stages - 1}"))


def uneven_work(settings: Settings) -> Drill:
    if settings.topology.dp < 4:
        raise ScenarioError("this scenario needs dp of at least 4")
    return drill(settings, UnevenWork(settings.topology, settings.factor), Claim.of("ArgusWorkImbalance"))


def skewed_work(settings: Settings) -> Drill:
    fault = SkewedWork(settings.topology, settings.factor, settings.rank)
    return drill(settings, fault, Claim.of("ArgusWorkImbalance"))


def skewed_unknown(settings: Settings) -> Drill:
    return drill(settings, SkewedWork(settings.topology, settings.factor, settings.rank, reported=False))


def skewed_straggler(settings: Settings) -> Drill:
    """The slow rank has a usual load, a few lanes from the busiest expert."""
    topology = settings.topology
    stage = topology.stage(settings.rank) * topology.lanes
    hot = stage + (topology.lane(settings.rank) + topology.lanes // 2) % topology.lanes
    slow = SlowRanks(topology, (settings.rank,), COMPUTE, settings.factor)
    return Drill(
        (Between(SkewedWork(topology, settings.factor, hot), 0.0), Between(slow, settings.since)),
        truth=Truth(
            (Claim.of("ArgusComputeStraggler", rank=settings.rank),),
            (*SYMPTOMS, Claim.of("ArgusWorkImbalance")),
        ),
    )


def global_slowdown(settings: Settings) -> Drill:
    """Needs half an hour of good past, an hour where iterations take more than 10 s."""
    return drill(settings, AllSlow(settings.factor), Claim.of("ArgusIterationRegression"))


def common_speed(settings: Settings) -> Drill:
    return drill(settings, AllSlow(settings.factor, _SPEED_PERIOD))


def intermittent(settings: Settings) -> Drill:
    slow = SlowRanks(settings.topology, (settings.rank,), COMPUTE, settings.factor)
    claim = Claim.of("ArgusComputeStraggler", rank=settings.rank)
    return Drill((Between(slow, settings.since, period=_INTERMITTENT),), truth=Truth((claim,), SYMPTOMS))


def two_faults(settings: Settings) -> Drill:
    """A slow rank, and another one in another stage and pipeline, or on another node."""
    topology = settings.topology
    other = (settings.rank + topology.lanes + 1) % topology.ranks
    faults = [SlowRanks(topology, (rank,), COMPUTE, settings.factor) for rank in (settings.rank, other)]
    claims = tuple(Claim.of("ArgusComputeStraggler", rank=rank) for rank in (settings.rank, other))
    return Drill(tuple(Between(fault, settings.since) for fault in faults), truth=Truth(claims, SYMPTOMS))


def hang(settings: Settings) -> Drill:
    stop = Stop(settings.since, "hang", (settings.rank,))
    claims = (Claim.of("ArgusHangSuspect", rank=settings.rank), Claim.of("ArgusRunHung"))
    return Drill(stops=(stop,), truth=Truth(claims))


def rank_down(settings: Settings) -> Drill:
    stop = Stop(settings.since, "die", (settings.rank,))
    claim = Claim.of("ArgusRankDown", rank=settings.rank)
    return Drill(stops=(stop,), truth=Truth((claim,), (Claim("ArgusRunHung"),)))


def missing(settings: Settings) -> Drill:
    ranks = tuple(range(settings.topology.ranks * 3 // 4))
    stop = Stop(settings.since, "die", ranks)
    return Drill(stops=(stop,), truth=Truth((Claim("ArgusRanksMissing"),), (Claim("ArgusRunHung"),)))


def restart(settings: Settings) -> Drill:
    return Drill(stops=(Stop(settings.since, "restart", seconds=_RESTART),), truth=Truth(may=SYMPTOMS))


def checkpoint(settings: Settings) -> Drill:
    return Drill(stops=(Stop(settings.since, "pause", seconds=_CHECKPOINT),), truth=Truth(may=SYMPTOMS))


_EXPERTS = Topology(dp=16, pp=2, ep=4)
_REPLICAS = Topology(dp=4, tp=4, pp=2)

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("healthy", "Nothing is wrong.", "nobody is accused", healthy),
        Scenario("straggler", "One rank's GPU is slow in all compute.", "the rank", straggler),
        Scenario(
            "overheated",
            "Heat holds one rank's GPU down.",
            "the rank, and its GPU's heat as evidence",
            overheated,
            1.6,
        ),
        Scenario(
            "masked-straggler",
            "A quarter of an expert group is slow in its mlp; its expert group and its pipelines wait, and "
            "come late to the gradient exchange, where they look fast (case 5 of the ARGUS paper).",
            "the slow ranks and mlp; no link, no other rank, no pipeline",
            masked,
            5.7,
            Topology(dp=160, pp=9, ep=32),
        ),
        Scenario(
            "bubble",
            "One rank is slow in its backward; its own pipeline waits for it, and the other "
            "pipelines' waiting hides in the gradient exchange.",
            "the rank and backward, and the pipeline that waits",
            bubble,
            1.9,
        ),
        Scenario(
            "link-ep", "The links of one expert group are slow.", "that communicator", links.ep, 3.0, _EXPERTS
        ),
        Scenario(
            "link-dp",
            "The links of one data-parallel group are slow.",
            "that communicator",
            links.dp,
            3.0,
            _REPLICAS,
        ),
        Scenario(
            "link-edge",
            "Transfers between one rank and the next stage are slow.",
            "that pair of ranks",
            links.edge,
            4.0,
        ),
        Scenario(
            "link-node",
            "One node's network adapter is slow.",
            "the communicators that leave the node, and the node",
            links.node,
            4.0,
            Topology(dp=4, tp=4, pp=4, per_node=4),
        ),
        Scenario(
            "link-and-straggler",
            "A slow link, and a slow rank elsewhere.",
            "both",
            links.and_straggler,
            3.0,
            _EXPERTS,
        ),
        Scenario("jit", "One rank compiles again and again.", "the rank; no hardware", jit, 40.0),
        Scenario(
            "host-bound",
            "One rank launches its kernels late; its GPU idles.",
            "the rank and gpu_idle",
            host_bound,
            60.0,
        ),
        Scenario(
            "data-loading",
            "One rank's input is late in every iteration.",
            "the rank and data_loading",
            data_loading,
            0.5,
            above=0.0,
        ),
        Scenario(
            "gc",
            "Garbage collection stops one rank after another.",
            "jitter, no rank",
            garbage_collection,
            1.5,
            above=0.5,
        ),
        Scenario("checkpoint", "A declared pause of five minutes.", "nobody is accused", checkpoint),
        Scenario(
            "uneven-stages", "The last stage holds more layers.", "the stage, no rank", uneven_stages, 1.6
        ),
        Scenario(
            "uneven-work",
            "Another replica has long sequences in every iteration.",
            "uneven work, no rank",
            uneven_work,
        ),
        Scenario(
            "skewed-work",
            "One expert gets more tokens than the others, iteration after iteration, and ranks report them.",
            "uneven work, no rank",
            skewed_work,
            2.0,
            _EXPERTS,
        ),
        Scenario(
            "skewed-work-unknown",
            "The same where nobody reports tokens, and the phases are marked as dependent on the data.",
            "nobody is accused",
            skewed_unknown,
            2.0,
            _EXPERTS,
        ),
        Scenario(
            "skewed-straggler",
            "Experts have different loads, and one rank is slow for its own.",
            "the rank, and uneven work",
            skewed_straggler,
            2.0,
            _EXPERTS,
        ),
        Scenario(
            "global-slowdown",
            "Everybody is slow, after a good past of half an hour (an hour, if iterations take over 10 s).",
            "a regression, no rank",
            global_slowdown,
            1.5,
            past=2400.0,
        ),
        Scenario(
            "common-speed",
            "All ranks change speed together, to and fro.",
            "no rank is accused",
            common_speed,
            above=0.0,
        ),
        Scenario(
            "intermittent",
            "A rank is slow for four minutes, healthy for four, and so on.",
            "the rank",
            intermittent,
        ),
        Scenario("two-faults", "Two ranks are slow, in different stages.", "both ranks", two_faults),
        Scenario(
            "hang",
            "One rank does not come out of its backward.",
            "the run hangs, and that rank holds it up",
            hang,
        ),
        Scenario("rank-down", "One rank dies.", "the rank is down, and the run hangs", rank_down),
        Scenario("missing-ranks", "Three quarters of the ranks die at once.", "ranks are missing", missing),
        Scenario("restart", "All ranks die and come back 80 s later.", "nobody is accused", restart),
    )
}
"""By name, in the order of the list."""
