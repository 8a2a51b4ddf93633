"""Who a rank is, from environments as launchers make them, and where it stands among the others."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Mapping

import pytest

from argus.tracer import megatron
from argus.tracer.identity import Identity, detect
from argus.tracer.parallel import Coordinates, Layout, nodes_spanned
from argus.tracer.topology import Topology

HOST = "host7"


@pytest.fixture(autouse=True)
def _no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have initialised."""
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.delitem(sys.modules, "megatron.core.parallel_state", raising=False)


def who(environ: Mapping[str, str], hostname: str = HOST, **arguments: object) -> Identity:
    return detect(environ, hostname=hostname, **arguments)  # type: ignore[arg-type]


TORCHRUN = {
    "RANK": "11",
    "LOCAL_RANK": "3",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "ROLE_NAME": "default",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_MAX_RESTARTS": "3",
    "TORCHELASTIC_RUN_ID": "none",
}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURMD_NODENAME": "gnode10",
    "SLURM_RESTART_COUNT": "1",
}


def test_torchrun() -> None:
    found = who(TORCHRUN)
    assert (found.rank, found.world_size, found.local_rank, found.ranks_per_node) == (11, 16, 3, 8)
    assert (found.attempt, found.node, found.role) == (2, HOST, None)
    assert who(TORCHRUN | {"TORCHELASTIC_RUN_ID": "my-run"}).run_id == "my-run"


def test_plain_torchrun_says_none_for_everybody() -> None:
    ids = {
        who(TORCHRUN | change).run_id
        for change in ({}, {"MASTER_ADDR": "node1"}, {"MASTER_PORT": "29501"}, {"WORLD_SIZE": "8"})
    }
    assert len(ids) == 4
    assert all(run_id.startswith("run-") and "none" not in run_id for run_id in ids)
    # The same for all ranks, on all nodes, and after a restart.
    other = TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "3"}
    assert who(other, hostname="host8").run_id == who(TORCHRUN).run_id


def test_every_machine_has_its_own_localhost() -> None:
    local = TORCHRUN | {"MASTER_ADDR": "localhost"}
    assert who(local).run_id != who(local, hostname="host8").run_id


def test_rank_without_local_rank_is_not_trusted() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "4"}
    assert (who(environ).rank, who(environ).world_size) == (0, 1)


def test_srun() -> None:
    found = who(SRUN)
    assert (found.run_id, found.rank, found.world_size, found.local_rank) == ("4711", 5, 8, 1)
    assert (found.ranks_per_node, found.node, found.attempt) == (4, "gnode10", 1)
    assert who(SRUN | {"SLURM_STEP_TASKS_PER_NODE": "4,2"}).ranks_per_node is None


def test_slurm_array_and_heterogeneous_jobs() -> None:
    array = SRUN | {"SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "3"}
    assert who(array).run_id == "4700_3"
    assert who(SRUN | {"SLURM_HET_JOB_ID": "4710"}).run_id == "4710"


@pytest.mark.parametrize("step", [None, str(0xFFFFFFFB), str(0xFFFFFFFA)])
def test_a_batch_script_or_shell_is_one_rank(step: str | None) -> None:
    environ = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"} | {"SLURM_PROCID": "0"}
    if step is not None:
        environ["SLURM_STEP_ID"] = step
    found = who(environ)
    assert (found.rank, found.world_size, found.run_id) == (0, 1, "4711")


def test_torchrun_within_slurm() -> None:
    found = who(SRUN | TORCHRUN)
    assert (found.rank, found.world_size, found.local_rank, found.run_id) == (11, 16, 3, "4711")
    assert found.attempt == 3  # one requeue, then torchrun's second restart
    assert found.node == "gnode10"


def test_mpirun_within_slurm() -> None:
    """Every process inherits the SLURM_PROCID of its node's daemon."""
    environ = SRUN | {
        "OMPI_COMM_WORLD_RANK": "6",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    }
    found = who(environ)
    assert (found.rank, found.world_size, found.local_rank, found.ranks_per_node) == (6, 8, 2, 4)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            (3, 4, 1, 2),
        ),
        (
            {
                "MV2_COMM_WORLD_RANK": "3",
                "MV2_COMM_WORLD_SIZE": "4",
                "MV2_COMM_WORLD_LOCAL_RANK": "1",
                "MV2_COMM_WORLD_LOCAL_SIZE": "2",
            },
            (3, 4, 1, 2),
        ),
        ({"PMI_RANK": "3"}, (0, 1, 0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "4"}, (0, 1, 0, 1)),
    ],
)
def test_mpi(environ: dict[str, str], expected: tuple[int, ...]) -> None:
    found = who(environ)
    assert (found.rank, found.world_size, found.local_rank, found.ranks_per_node) == expected
    assert found.run_id == who(environ).run_id
    assert found.run_id.startswith("run-")


def test_mpi_run_has_one_id_on_all_nodes() -> None:
    environ = {"PMI_RANK": "3", "PMI_SIZE": "4"}
    assert who(environ).run_id == who({"PMI_RANK": "0", "PMI_SIZE": "4"}, hostname="host8").run_id
    assert who(environ | {"PMIX_NAMESPACE": "prterun-n-1@1"}).run_id == "prterun-n-1@1"


KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
PYTORCHJOB = KUBERNETES | {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "bert-master-0",
    "MASTER_PORT": "23456",
    "PET_NPROC_PER_NODE": "1",
}


def test_kubeflow_pytorchjob() -> None:
    found = who(PYTORCHJOB, hostname="bert-worker-1", node=None)
    assert (found.run_id, found.rank, found.world_size) == ("bert", 2, 4)
    assert who(PYTORCHJOB | {"NODE_NAME": "kube-3"}, hostname="bert-worker-1").node == "kube-3"
    assert who(PYTORCHJOB, hostname="localhost.localdomain").run_id == "bert"


def test_kubeflow_rank_is_the_pods_where_it_runs_several_processes() -> None:
    many = PYTORCHJOB | {"PET_NPROC_PER_NODE": "8"}
    assert who(many, hostname="bert-worker-1").world_size == 1
    inside = many | {"RANK": "17", "LOCAL_RANK": "1", "WORLD_SIZE": "32", "TORCHELASTIC_RUN_ID": "none"}
    found = who(inside, hostname="bert-worker-1")
    assert (found.rank, found.world_size, found.run_id) == (17, 32, "bert")


def test_kubeflow_trainjob() -> None:
    environ = KUBERNETES | {
        "PET_NNODES": "4",
        "PET_NODE_RANK": "3",
        "PET_MASTER_ADDR": "llm-node-0-0.llm",
        "PET_NPROC_PER_NODE": "1",
        "JOB_COMPLETION_INDEX": "3",
    }
    found = who(environ, hostname="llm-node-0-3")
    assert (found.run_id, found.rank, found.world_size) == ("llm", 3, 4)


def test_jobset_and_indexed_job() -> None:
    environ = KUBERNETES | {
        "JOBSET_NAME": "pretrain",
        "JOB_COMPLETION_INDEX": "1",
        "JOBSET_RESTART_ATTEMPT": "4",
    }
    found = who(environ | TORCHRUN, hostname="pretrain-workers-0-1")
    assert (found.run_id, found.rank, found.attempt) == ("pretrain", 11, 6)
    alone = KUBERNETES | {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2"}
    found = who(alone, hostname="myjob-1")
    assert (found.run_id, found.rank, found.world_size) == ("myjob", 1, 2)
    # How many there are nobody says: unknown, not wrong.
    assert who(KUBERNETES | {"JOB_COMPLETION_INDEX": "1"}, hostname="myjob-1").world_size is None


def test_arguments_and_argus_variables_come_first() -> None:
    environ = SRUN | TORCHRUN | {"ARGUS_RUN_ID": "mine", "ARGUS_ROLE": "encoder", "ARGUS_NODE": "rack1"}
    found = who(environ)
    assert (found.run_id, found.role, found.node) == ("mine", "encoder", "rack1")
    found = who(environ, run_id="a", rank=1, world_size=2, local_rank=0, node="n", role="actor", attempt=9)
    assert found == Identity("a", 1, 2, 0, None, 9, "n", "actor")
    assert who({}, run_id="none").run_id.startswith("run-")
    assert who({"ARGUS_RUN_ID": " "}).run_id.startswith("run-")


def test_a_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = who({})
    assert (found.rank, found.world_size, found.local_rank, found.attempt) == (0, 1, 0, 0)
    assert found.run_id == who({}).run_id
    assert found.run_id != who({}, hostname="host8").run_id
    monkeypatch.setattr(sys, "argv", ["other.py"])
    assert found.run_id != who({}).run_id


class FakeDistributed(types.ModuleType):
    """The functions of torch.distributed that are asked, of rank 5 of 8."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return 5

    def get_world_size(self) -> int:
        return 8

    def get_process_group_ranks(self, group: list[int]) -> list[int]:
        return group


def test_an_initialised_process_group_knows_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.multiprocessing.spawn within a pod or a batch job sets no variable."""
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeDistributed("torch.distributed"))
    found = who(PYTORCHJOB, hostname="bert-worker-1")
    assert (found.rank, found.world_size, found.local_rank, found.run_id) == (5, 8, None, "bert")
    torchrun = TORCHRUN | {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    found = who(torchrun)
    assert (found.rank, found.local_rank, found.ranks_per_node) == (5, 1, 4)


# ---- coordinates ----


def test_coordinates_of_sixteen_ranks_by_hand() -> None:
    """The example of Megatron's own documentation: 16 GPUs, tensor 2, pipeline 4."""
    layout = Layout(16, tp=2, pp=4)
    groups = {
        group: {tuple(layout.members(group, rank) or ()) for rank in range(16)}
        for group in ("tp", "dp", "pp")
    }
    assert groups["tp"] == {(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)}
    assert groups["pp"] == {(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)}
    assert groups["dp"] == {(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)}
    assert layout.coordinates(13) == Coordinates(dp=0, tp=1, pp=3, cp=0, ep=0)
    assert layout.coordinates(10) == Coordinates(dp=1, tp=0, pp=2, cp=0, ep=0)


def test_the_masked_stragglers_job() -> None:
    """12,960 ranks: pp 9, dp 1,440, ep 32, and rank = pp * 1440 + dp."""
    layout = Layout(12_960, pp=9, ep=32)
    assert layout.coordinates(10_352) == Coordinates(dp=272, tp=0, pp=7, cp=0, ep=16)
    assert layout.members("ep", 10_352) == list(range(10_336, 10_368))
    assert layout.members("dp", 10_352) == list(range(10_080, 11_520))
    assert layout.members("edp", 10_352) == list(range(10_096, 11_520, 32))
    assert layout.members("world", 5) == list(range(12_960))
    assert layout.members("other", 5) is None


def brute_force(world: int, order: str, sizes: dict[str, int]) -> list[dict[str, int]]:
    """Counts through all coordinates, the first of the order fastest."""
    names = order.split("-")
    assert world == len(list(itertools.product(*(range(sizes[name]) for name in names))))
    table = []
    for values in itertools.product(*(range(sizes[name]) for name in reversed(names))):
        table.append(dict(zip(reversed(names), values, strict=True)))
    return table


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-pp-dp-cp-ep", "pp-dp-ep-cp-tp"])
@pytest.mark.parametrize(
    ("tp", "cp", "dp", "pp", "ep", "etp"),
    [(2, 1, 4, 3, 2, None), (2, 2, 4, 2, 4, 1), (1, 3, 2, 2, 6, None), (4, 1, 2, 1, 2, 2)],
)
def test_coordinates_and_groups_against_counting(
    order: str, tp: int, cp: int, dp: int, pp: int, ep: int, etp: int | None
) -> None:
    world = tp * cp * dp * pp
    expert_tp = etp or tp
    edp = world // (expert_tp * ep * pp)
    dense = brute_force(world, order, {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp})
    expert = brute_force(world, order, {"tp": expert_tp, "cp": 1, "ep": ep, "dp": edp, "pp": pp})
    layout = Layout(world, tp=tp, cp=cp, pp=pp, ep=ep, etp=etp, order=order)
    for rank in range(world):
        assert layout.coordinates(rank) == Coordinates(
            dp=dense[rank]["dp"],
            tp=dense[rank]["tp"],
            pp=dense[rank]["pp"],
            cp=dense[rank]["cp"],
            ep=expert[rank]["ep"],
        )
        for group, dimension, table in (
            ("tp", "tp", dense),
            ("cp", "cp", dense),
            ("dp", "dp", dense),
            ("pp", "pp", dense),
            ("ep", "ep", expert),
            ("edp", "dp", expert),
        ):
            others = {name: value for name, value in table[rank].items() if name != dimension}
            same = [r for r in range(world) if {**table[r], dimension: 0} == {**others, dimension: 0}]
            assert layout.members(group, rank) == same, (group, rank)


@pytest.mark.parametrize(
    ("world", "sizes", "message"),
    [
        (10, {"tp": 4}, "tp \\* cp \\* pp = 4 does not divide the 10 ranks"),
        (8, {"ep": 3}, "expert tp \\* ep \\* pp = 3 does not divide the 8 ranks"),
        (8, {"tp": 0}, "at least 1"),
        (0, {}, "does not divide"),
        (8, {"order": "tp-xp"}, "order"),
        (8, {"order": "tp-tp"}, "order"),
    ],
)
def test_sizes_that_do_not_fit(world: int, sizes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(world, **sizes)  # type: ignore[arg-type]


def test_nodes_spanned() -> None:
    assert nodes_spanned([0, 1, 7], 8) == 1
    assert nodes_spanned([7, 8, 31], 8) == 3
    assert nodes_spanned([0, 1], None) == -1


# ---- communicators ----


def topology(rank: int) -> Topology:
    identity = Identity("r", rank, 16, None, 4, 0, "n", None)
    return Topology(identity, Layout(16, tp=2, pp=4), None)


def test_communicators_from_the_sizes() -> None:
    here = topology(13)
    assert here.communicator("tp", None) == ("tp-12", 2, 1)
    assert here.communicator("pp", None) == ("pp-1", 4, 4)
    assert here.communicator("world", None) == ("world-0", 16, 4)
    assert here.communicator("pp", 9) == ("pp-9-13", 2, 2)
    assert topology(9).communicator("pp", 13) == ("pp-9-13", 2, 2)
    assert here.communicator("mine", None) == ("mine-unknown", -1, -1)
    assert here.role == "pp3"


def test_communicators_where_nothing_is_known() -> None:
    here = Topology(Identity("r", 3, None, None, None, 0, "n", None), None, None)
    assert here.communicator("dp", None) == ("dp-unknown", -1, -1)
    assert here.communicator("world", None) == ("world-unknown", -1, -1)
    assert here.coordinates == Coordinates()
    assert here.role == "pp0"


@pytest.fixture
def parallel_state(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Megatron-Core's module in an initialised job, as far as it is asked; a group is its list of ranks."""
    state = types.ModuleType("megatron.core.parallel_state")
    ready = {"value": False}

    def no_group() -> list[int]:
        raise AssertionError("context parallel group is not initialized")

    functions = {
        "model_parallel_is_initialized": lambda: ready["value"],
        "get_data_parallel_rank": lambda: 1,
        "get_tensor_model_parallel_rank": lambda: 0,
        "get_pipeline_model_parallel_rank": lambda: 2,
        "get_context_parallel_rank": lambda: 0,
        "get_expert_model_parallel_rank": lambda: 1,
        "get_tensor_model_parallel_group": lambda: [10, 11],
        "get_data_parallel_group": lambda: [10, 8],
        "get_context_parallel_group": no_group,
        "get_pipeline_model_parallel_group": lambda: [2, 6, 10, 14],
        # No expert groups: an old version has not got them.
    }
    for name, function in functions.items():
        setattr(state, name, function)
    state.ready = ready  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    monkeypatch.setitem(sys.modules, "torch.distributed", FakeDistributed("torch.distributed"))
    return state


def test_megatron_knows_better_than_sizes(parallel_state: types.ModuleType) -> None:
    here = Topology(Identity("r", 10, 16, None, 8, 0, "n", None), Layout(16), None)
    assert not here.refresh()
    assert here.coordinates == Coordinates(dp=10, tp=0, pp=0, cp=0, ep=0)
    parallel_state.ready["value"] = True
    assert here.refresh()
    assert not here.refresh()
    assert here.coordinates == Coordinates(dp=1, tp=0, pp=2, cp=0, ep=1)
    assert here.role == "pp2"
    assert here.communicator("dp", None) == ("dp-8", 2, 1)
    assert here.communicator("pp", None) == ("pp-2", 4, 2)
    found = megatron.read()
    assert found is not None
    assert set(found.groups) == {"tp", "dp", "pp"}
