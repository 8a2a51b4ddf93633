"""The timing model: places, schedules, and waits that follow from both."""

from __future__ import annotations

import time

import numpy as np
import pytest

from argus.drill.conditions import COMPUTE
from argus.drill.faults import (
    Between,
    Fault,
    Moment,
    SlowAdapter,
    SlowEdge,
    SlowLink,
    SlowRanks,
    Stall,
    apply,
)
from argus.drill.schedule import before, global_order, stage_order
from argus.drill.timing import Channel, Iteration, Model, Profile
from argus.drill.topology import Topology, TopologyError

EXACT = Profile(noise=0.0, device_noise=0.0, link_noise=0.0, gaps=0.0)


def iteration(topology: Topology, *faults: Fault, profile: Profile = EXACT) -> Iteration:
    """The second iteration, under these faults."""
    model = Model(topology, profile)
    moment = Moment(0.0, 0, np.random.default_rng(1))
    model.iteration(apply(faults, model.conditions(), moment))
    return model.iteration(apply(faults, model.conditions(), moment))


def channel(found: Iteration, op: str, group: str, end: int = 0) -> Channel:
    return next(c for c in found.channels if (c.op, c.group, c.end) == (op, group, end))


def test_the_papers_job() -> None:
    topology = Topology(dp=1440, tp=1, pp=9, ep=32)
    assert topology.ranks == 12_960
    assert topology.nodes == 1_620
    # rank = pp * 1440 + dp
    place = topology.coordinates(10_352)
    assert (place.pp, place.dp) == (7, 272)
    assert topology.members("ep", 10_352) == list(range(10_336, 10_368))
    assert topology.members("dp", 10_352) == list(range(7 * 1440, 8 * 1440))


@pytest.mark.parametrize("group", ["tp", "cp", "dp", "ep"])
def test_groups_of_lanes_are_those_of_the_ranks(group: str) -> None:
    topology = Topology(dp=4, tp=2, pp=3, cp=2, ep=4)
    for rank in range(topology.ranks):
        lanes = [lanes for lanes in topology.lane_groups[group].tolist() if topology.lane(rank) in lanes]
        expected = [member % topology.lanes for member in topology.members(group, rank)]
        assert [sorted(one) for one in lanes] == [expected]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dp": 6, "ep": 4}, "ep = 4 does not divide"),
        ({"pp": 0}, "pp is 0"),
        ({"pp": 1, "chunks": 2}, "needs pp of at least 2"),
        ({"pp": 4, "chunks": 2, "micro_batches": 6}, "pp = 4 divides"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology(**sizes)


def test_one_forward_one_backward() -> None:
    # Stage 1 of 3: one warm-up forward, then forward and backward in turns.
    steps = stage_order(Topology(pp=3, micro_batches=4), 1)
    told = ["F" + str(s.micro_batch) if s.forward else "B" + str(s.micro_batch) for s in steps]
    assert told == ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"]
    assert [s.last for s in steps] == [False] * 7 + [True]


def test_interleaved() -> None:
    # Two stages of two chunks, as published: warm-up of (2 - 0 - 1) * 2 + (2 - 1) * 2 = 4 forwards.
    steps = stage_order(Topology(pp=2, micro_batches=4, chunks=2), 0)
    told = [("F" if s.forward else "B") + f"{s.chunk}.{s.micro_batch}" for s in steps]
    assert told == [
        "F0.0", "F0.1", "F1.0", "F1.1",
        "F0.2", "B1.0", "F0.3", "B1.1", "F1.2", "B0.0", "F1.3", "B0.1",
        "B1.2", "B1.3", "B0.2", "B0.3",
    ]  # fmt: skip


@pytest.mark.parametrize(("stages", "batches", "chunks"), [(1, 3, 1), (4, 2, 1), (4, 8, 3), (3, 3, 2)])
def test_every_step_comes_after_what_it_needs(stages: int, batches: int, chunks: int) -> None:
    topology = Topology(pp=stages, micro_batches=batches, chunks=chunks)
    order = global_order(topology)
    assert len({step.name for step in order}) == len(order) == 2 * stages * batches * chunks
    done = set()
    for step in order:
        need = before(topology, step)
        assert need is None or need in done
        done.add(step.name)


def test_a_pipeline_leaves_the_bubble_of_its_schedule() -> None:
    # No transfers: p - 1 of m + p - 1 steps of a stage are bubble.
    free = Profile(
        noise=0.0, device_noise=0.0, link_noise=0.0, gaps=0.0, reduction=1e-9, gather=1e-9, optimizer=0.0,
        loading=0.0, shares={**EXACT.shares, "pp": 0.0},
    )  # fmt: skip
    for stages, batches in ((4, 8), (2, 6), (1, 4)):
        found = iteration(Topology(dp=1, pp=stages, micro_batches=batches), profile=free)
        busy = sum(found.phases[phase][0, 0] for phase in COMPUTE)
        bubble = 1 - busy / (found.end - found.begin).max()
        assert bubble == pytest.approx((stages - 1) / (batches + stages - 1), abs=1e-6)


def test_whoever_is_slow_has_the_shortest_collectives() -> None:
    topology = Topology(dp=4, pp=1)
    gather = channel(iteration(topology, SlowRanks(topology, (2,), COMPUTE, 2.0)), "all_gather", "dp").seconds
    transfer = EXACT.gather * EXACT.iteration
    assert gather[0, 0].argmin() == 2
    assert gather[0, 0, 2] == pytest.approx(transfer)
    assert (np.delete(gather[0, 0], 2) > transfer).all()


def test_the_last_of_every_communicator_waits_for_nobody() -> None:
    topology = Topology(dp=4, tp=2, pp=4, cp=2, ep=4)
    slow = SlowRanks(topology, (5, 40), COMPUTE, 3.0)
    found = iteration(topology, slow, profile=Profile(link_noise=0.0))
    step = Profile().step(topology)
    for op, group in (("all_reduce", "tp"), ("all_gather", "cp"), ("all_to_all", "ep")):
        seconds = channel(found, op, group).seconds
        for lanes in topology.lane_groups[group].tolist():
            fastest = seconds[:, :, lanes].min(axis=2)
            assert np.allclose(fastest, Profile().shares[group] * step)
    forward = [channel(found, "forward_transfer", "pp", end).seconds for end in (1, -1)]
    # Sent by a stage, received by the next: one of both ends came last.
    fastest = np.minimum(forward[0][:, :-1], forward[1][:, 1:])
    assert np.allclose(fastest, Profile().shares["pp"] * step)


def test_only_the_slow_rank_computes_longer() -> None:
    topology = Topology(dp=4, tp=2, pp=2, ep=2)
    healthy = iteration(topology)
    faulty = iteration(topology, SlowRanks(topology, (3,), ("mlp",), 5.7))
    ratio = faulty.phases["mlp"] / healthy.phases["mlp"]
    assert ratio[0, 3] == pytest.approx(5.7)
    assert np.allclose(np.delete(ratio.reshape(-1), 3), 1)
    assert np.allclose(faulty.phases["backward"], healthy.phases["backward"])
    assert ((faulty.end - faulty.begin) > 1.2 * (healthy.end - healthy.begin)).all()


def test_the_reduce_scatter_of_the_papers_case_5() -> None:
    """Pipelines of the late expert group come last to the gradient exchange, at every stage."""
    topology = Topology(dp=64, pp=3, ep=8, micro_batches=6)
    first = 2 * topology.lanes + 3 * 8  # stage 2, expert group 24 to 31
    found = iteration(topology, SlowRanks(topology, (first + 4, first + 5), ("mlp",), 5.7))
    seconds = channel(found, "reduce_scatter", "dp").seconds.min(axis=0)  # stages, lanes
    late = seconds[:, 24:32]
    others = np.delete(seconds, np.s_[24:32], axis=1)
    assert (late.max(axis=1) < others.min(axis=1)).all()
    # Inside the expert group everybody but the slow ones waits in the all-to-all.
    exchange = channel(found, "all_to_all", "ep").seconds[:, 2].mean(axis=0)
    assert set(np.argsort(exchange[24:32])[:2].tolist()) == {4, 5}


def test_a_slow_link_slows_one_communicator() -> None:
    topology = Topology(dp=8, pp=2, ep=4)
    healthy, slow = iteration(topology), iteration(topology, SlowLink(topology, "ep", 13, 3.0))
    members = [rank % topology.lanes for rank in topology.members("ep", 13)]
    ratio = channel(slow, "all_to_all", "ep").seconds.min(axis=0) / channel(
        healthy, "all_to_all", "ep"
    ).seconds.min(axis=0)
    assert np.allclose(ratio[1, members], 3.0)
    assert np.allclose(np.delete(ratio[1], members), 1.0)
    assert np.allclose(ratio[0], 1.0)


def test_a_slow_edge_and_a_slow_adapter() -> None:
    topology = Topology(dp=4, tp=2, pp=2, per_node=2)
    model = Model(topology, EXACT)
    moment = Moment(0.0, 0, np.random.default_rng(1))
    edge = apply([SlowEdge(topology, 3, 4.0)], model.conditions(), moment)
    # Two stages: lane 3 from stage 0 to 1, and, where the schedule is interleaved, back from 1 to 0.
    assert np.flatnonzero(edge.edges.reshape(-1) != 1).tolist() == [3, 11]
    longer = Topology(dp=4, tp=2, pp=3)
    edge = apply([SlowEdge(longer, 3, 4.0)], Model(longer, EXACT).conditions(), moment)
    assert np.flatnonzero(edge.edges.reshape(-1) != 1).tolist() == [3]
    node = apply([SlowAdapter(topology, 1, 4.0)], model.conditions(), moment)  # ranks 2 and 3
    # Its tensor-parallel pair stays inside; both data-parallel groups of stage 0 leave it.
    assert (node.links["tp"] == 1).all()
    assert node.links["dp"].tolist() == [[4.0, 4.0], [1.0, 1.0]]
    # Edges from ranks 2 and 3 to the next stage, and from 10 and 11 back around to them.
    assert np.flatnonzero(node.edges.reshape(-1) != 1).tolist() == [2, 3, 10, 11]


def test_faults_come_and_go() -> None:
    topology = Topology(dp=2, pp=1)
    fault = Between(SlowRanks(topology, (1,), ("mlp",), 2.0), since=100, until=400, period=50)

    def factor(now: float) -> float:
        conditions = Model(topology, EXACT).conditions()
        apply([fault], conditions, Moment(now, 0, np.random.default_rng(1)))
        return float(conditions.compute["mlp"][0, 1])

    assert [factor(t) for t in (0, 100, 149, 150, 200, 399, 400)] == [1, 2, 2, 1, 2, 1, 1]


def test_a_stall_holds_up_its_rank() -> None:
    topology = Topology(dp=2, pp=1)
    found = iteration(topology, Stall(topology, "jit_compile", 5.0, (1,)))
    assert found.phases["jit_compile"][0, 0] == 0
    assert 4 <= found.phases["jit_compile"][0, 1] <= 6


def test_a_seed_repeats_an_iteration() -> None:
    topology = Topology(dp=4, pp=2)
    ends = []
    for seed in (3, 3, 4):
        model = Model(topology, Profile(), seed)
        ends.append(model.iteration(model.conditions()).end)
    assert (ends[0] == ends[1]).all()
    assert (ends[0] != ends[2]).any()


def test_the_largest_job_is_modelled_fast() -> None:
    model = Model(Topology(dp=1440, pp=9, ep=32, micro_batches=16), Profile())
    took = []
    for _ in range(2):
        began = time.perf_counter()
        model.iteration(model.conditions())
        took.append(time.perf_counter() - began)
    assert min(took) < 2, f"{min(took):.2f} s for 12,960 ranks; it is about 0.2 s on an idle core"
