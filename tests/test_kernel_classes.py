"""Kernel classes: real names, hostile names, the user's patterns, and ``argus classify``."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest

from argus import _native
from argus.cli import main
from argus.kernels.patterns import PatternsError, read_patterns
from traces_support import DATA, case

NAMES = [
    tuple(line.split(" ", 1))
    for line in (DATA / "kernel_names.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def test_the_classes_are_the_fixed_set() -> None:
    assert _native.kernel_classes() == (
        "gemm", "attention", "normalization", "elementwise", "reduction", "embedding", "optimizer", "moe",
        "memcpy", "memset", "communication_all_reduce", "communication_reduce_scatter",
        "communication_all_gather", "communication_all_to_all", "communication_broadcast",
        "communication_reduce", "communication_send_recv", "communication_other", "other",
    )  # fmt: skip


def test_real_names_get_their_class() -> None:
    assert len(set(NAMES)) >= 200
    assert {known for known, _ in NAMES} == set(_native.kernel_classes())
    wrong = [
        (known, _native.kernel_class(name), name) for known, name in NAMES
        if _native.kernel_class(name) != known
    ]  # fmt: skip
    assert not wrong


def test_a_mangled_name_gets_the_class_of_the_demangled_one() -> None:
    tool = shutil.which("c++filt")
    if tool is None:
        pytest.skip("no c++filt")
    mangled = [name for _, name in NAMES if name.startswith("_Z")]
    assert len(mangled) > 100
    done = subprocess.run([tool], input="\n".join(mangled), capture_output=True, text=True, check=True)
    demangled = done.stdout.splitlines()
    assert sum(name.startswith("_Z") for name in demangled) < 0.05 * len(mangled)  # c++filt gives up on a few
    assert [_native.kernel_class(name) for name in demangled] == [
        _native.kernel_class(name) for name in mangled
    ]


def test_the_file_and_the_unnamed_namespace_of_a_kernel_say_nothing() -> None:
    plain = "void at::native::special_thing<float>(int)"
    assert _native.kernel_class(plain) == "other"
    for inner in (
        "at::native::(anonymous namespace)::special_thing",
        "at::native::<unnamed>::special_thing",
        "_GLOBAL__N__f9cc8508_15_EmbeddingBag_cu_49f7391c::special_thing",
        "_INTERNAL_ad704282_9_SoftMax_cu_285fecc2::at::native::special_thing",
    ):
        assert _native.kernel_class(f"void {inner}<float>(int)") == "other"
    space = "_GLOBAL__N__f9cc8508_15_EmbeddingBag_cu_49f7391c"
    assert _native.kernel_class(f"_ZN{len(space)}{space}13special_thingIfEEvi") == "other"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "_Z",
        "_ZN",
        "_ZN5",
        "_ZN99999999999999999999gemm",
        "_ZN18446744073709551615gemmE",
        "_ZNStStStStSt",
        "_ZLLLLL",
        "<" * 5000,
        "(" * 5000,
        ">)}" * 2000,
        "std::enable_if<",
        "std::enable_if<>::type ",
        "(anonymous namespace)::",
        "_INTERNAL_",
        "a" * 10_000_000,
        "_ZN" + "1a" * 3000 + "E",
        "\udcff\udc80 gem\udc00m",
        "gemm\0attention",
    ],
    ids=lambda name: repr(name)[:30],
)
def test_a_damaged_name_is_just_some_class(name: str) -> None:
    assert _native.kernel_class(name) in _native.kernel_classes()


def test_random_names_take_bounded_time() -> None:
    source = random.Random(7)
    words = [word for _, name in NAMES for word in (name[:20], name[-30:])] + ["_Z", "N", "I", "E", "::", "*"]
    slowest = 0.0
    for _ in range(3000):
        if source.random() < 0.5:
            name = "".join(source.choices(words, k=source.randrange(1, 60)))
        else:
            name = source.randbytes(source.randrange(5000)).decode("utf-8", "surrogateescape")
        begin = time.perf_counter()
        assert _native.kernel_class(name) in _native.kernel_classes()
        slowest = max(slowest, time.perf_counter() - begin)
    assert slowest < 0.5  # 2 ms at most on a quiet machine


def test_only_the_first_part_of_a_huge_name_counts() -> None:
    assert _native.kernel_class("gemm" + "x" * 9000) == "gemm"
    assert _native.kernel_class("x" * 5000 + "gemm") == "other"


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("my_kernel", "void space::My_Kernel<float>(int)", True),
        ("my_kernel", "_ZN5space9my_kernelIfEEvi", True),
        ("space*my_kernel", "_ZN5space9my_kernelIfEEvi", True),
        ("my?kernel", "a my-kernel", True),
        ("my?kernel", "mykernel", False),
        ("^my", "my_kernel", True),
        ("^my", "not_my_kernel", False),
        ("nel$", "my_kernel", True),
        ("nel$", "my_kernel_2", False),
        ("^my_kernel$", "my_kernel", True),
        ("^my_kernel$", "my_kernel_", False),
        ("^a*b$", "axxb", True),
        ("^a*b$", "ab", True),
        ("^ab*b$", "ab", False),
        ("a*ba$", "aba ba", True),
        ("*", "", True),
        ("two words", "has two words in it", True),
        ("[x]", "axb", False),
    ],
)
def test_patterns_mean_what_the_help_says(tmp_path: Path, pattern: str, name: str, found: bool) -> None:
    patterns = read_patterns(write(tmp_path / "p", f"moe {pattern}\n"))
    assert _native.kernel_class(name, patterns) == ("moe" if found else "other")


def test_patterns_go_first_and_in_order(tmp_path: Path) -> None:
    text = "# mine\n\n  optimizer\tampere_*_tn  \r\nother ampere_\ncommunication_all_to_all exchange"
    patterns = read_patterns(write(tmp_path / "p", text))
    assert _native.kernel_class("ampere_sgemm_32x128_tn", patterns) == "optimizer"
    assert _native.kernel_class("ampere_sgemm_32x128_nn", patterns) == "other"
    assert _native.kernel_class("token_exchange", patterns) == "communication_all_to_all"
    assert _native.kernel_class("volta_sgemm_32x128_nn", patterns) == "gemm"
    with pytest.raises(ValueError, match="PyCapsule"):
        _native.kernel_class("volta_sgemm_32x128_nn", "not patterns")


def test_a_wrong_line_is_named_and_the_good_ones_count(tmp_path: Path) -> None:
    path = write(tmp_path / "my patterns", "gemm tile\ngem mine\nmoe\nmoe router\n")
    patterns, complaint = _native.read_kernel_patterns(path)
    assert complaint == f"{path}:2: no such class (argus classify --list names them): 'gem' (and 1 more)"
    assert _native.kernel_class("tile_router", patterns) == "gemm"
    assert _native.kernel_class("router_3", patterns) == "moe"
    with pytest.raises(PatternsError, match="my patterns:2: no such class"):
        read_patterns(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gemm", ":1: a class without a pattern; write: class pattern"),
        ("\n\ngemm \t \n", ":3: a class without a pattern; write: class pattern"),
        ("gemm " + "x" * 201, ":1: a pattern of more than 200 bytes; a part of the name is enough"),
        ("gemm a\0b", ":1: a zero byte; save the file as plain text"),
        ("gemm x\n" * 257, ":257: more than 256 patterns; join some with *"),
        ("# " + "x" * 70_000, ": larger than 64 KiB; keep only lines of: class pattern"),
    ],
    ids=["bare class", "blank pattern", "long", "zero byte", "many", "large"],
)
def test_each_fault_says_where_it_is_and_how_to_mend_it(tmp_path: Path, text: str, what: str) -> None:
    path = write(tmp_path / "p", text)
    assert _native.read_kernel_patterns(path)[1] == f"{path}{what}"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, what in (
        (pipe, "not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file or directory"),
    ):
        patterns, complaint = _native.read_kernel_patterns(path)
        assert patterns is None
        assert complaint.startswith(f"{path}: {what}")


def test_a_file_of_comments_is_fine_and_changes_nothing(tmp_path: Path) -> None:
    assert read_patterns(write(tmp_path / "p", "# nothing yet\n")) is None
    assert read_patterns(write(tmp_path / "p", "")) is None


def test_the_worst_pattern_takes_bounded_time(tmp_path: Path) -> None:
    lines = ["gemm " + "a*" * 99 + "b", "gemm " + "a" * 199 + "b", "gemm " + "?" * 199 + "b", "gemm *a*a*b$"]
    patterns = read_patterns(write(tmp_path / "p", "\n".join(lines * 64)))
    begin = time.perf_counter()
    assert _native.kernel_class("a" * 100_000, patterns) == "other"
    assert time.perf_counter() - begin < 5.0  # 40 ms on a quiet machine


def device_events(path: Path) -> list[tuple[str, str, float]]:
    """(category, name, seconds) of all device work, by loading the whole file."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    return [(e["cat"], e["name"], e["dur"] / 1e6) for e in events if e.get("cat") in kinds]


def test_the_real_trace_is_classified(capsys: pytest.CaptureFixture[str]) -> None:
    folder = case("kineto")
    assert main(["classify", str(folder), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    events = [event for path in sorted(folder.glob("*.gz")) for event in device_events(path)]
    by_prefix: dict[str, float] = defaultdict(float)
    for kind, name, seconds in events:
        by_prefix[kind] += seconds
        by_prefix["nccl"] += seconds if name.startswith("nccl") else 0.0
        if name.removeprefix("void ").startswith(("cutlass::Kernel", "ampere_sgemm")):
            by_prefix["products"] += seconds
    classes = found["classes"]
    whole = sum(item["seconds"] for item in classes.values())
    assert sum(item["count"] for item in classes.values()) == len(events)
    assert whole == pytest.approx(sum(seconds for _, _, seconds in events))
    assert classes["memcpy"]["seconds"] == pytest.approx(by_prefix["gpu_memcpy"])
    assert classes["memset"]["seconds"] == pytest.approx(by_prefix["gpu_memset"])
    assert classes["communication_send_recv"]["seconds"] == pytest.approx(by_prefix["nccl"])
    assert by_prefix["products"] <= classes["gemm"]["seconds"] <= 1.1 * by_prefix["products"]
    assert classes["other"]["seconds"] < 0.02 * by_prefix["kernel"]
    assert classes["other"]["seconds"] == 0 or found["other"]


def kineto(path: Path, *events: dict[str, object]) -> str:
    shared = {"ph": "X", "cat": "kernel", "ts": 1.0}
    path.write_text(json.dumps({"traceEvents": [{**shared, **event} for event in events]}))
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return kineto(
        tmp_path / "rank-0.json",
        {"name": "ampere_sgemm_128x64_nn", "dur": 1000},
        {"name": "ampere_sgemm_128x64_nn", "dur": 2000},
        {"name": "mine_short", "dur": 500},
        {"name": "mine_long", "dur": 700},
        {"name": "mine_short", "dur": 100},
        {"name": "Memcpy HtoD (Pinned -> Device)", "cat": "gpu_memcpy", "dur": 300},
        {"name": "a copy of another name", "cat": "Memcpy", "dur": 100},
        {"name": "Memset (Device)", "cat": "gpu_memset", "dur": 300},
        {"name": "aten::mm", "cat": "cpu_op", "dur": 9999},
        {"name": "ampere_sgemm_128x64_nn", "dur": "long"},
        {"name": "ampere_sgemm_128x64_nn", "dur": -1},
        {"name": "ampere_sgemm_128x64_nn", "dur": 10**400},
    )


def test_json_output(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", trace, "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["other"] == ["mine_long", "mine_short"]
    assert {name: item for name, item in found["classes"].items() if item["count"]} == {
        "gemm": {"seconds": 0.003, "count": 2},
        "memcpy": {"seconds": 0.0004, "count": 2},
        "memset": {"seconds": 0.0003, "count": 1},
        "other": {"seconds": 0.0013, "count": 3},
    }
    assert set(found["classes"]) == set(_native.kernel_classes())
    assert "without a name or a valid duration (3 times)" in err


def test_table_output(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", trace, "--quiet"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["class", "seconds", "count", "share"],
        ["gemm", "0.003000", "2", "60.00%"],
        ["other", "0.001300", "3", "26.00%"],
        ["memcpy", "0.000400", "2", "8.00%"],
        ["memset", "0.000300", "1", "6.00%"],
        ["all", "0.005000", "8"],
        [],
        ["names", "in", "other,", "by", "seconds:"],
        ["0.000700", "mine_long"],
        ["0.000600", "mine_short"],
    ]


def test_odd_names_are_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kineto(tmp_path / "odd.json", {"name": "a\x1b[31m\ud800", "dur": 1})
    assert main(["classify", path, "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("  a\ufffd[31m\ufffd")


def test_the_users_patterns_change_the_answer(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "p", "moe ^mine_\n")
    assert main(["classify", trace, "--json", "--quiet", "--patterns", str(path)]) == 0
    by_flag = capsys.readouterr().out
    assert json.loads(by_flag)["classes"]["moe"]["count"] == 3
    monkeypatch.setenv("ARGUS_KERNEL_PATTERNS", str(path))
    assert main(["classify", trace, "--json", "--quiet"]) == 0
    assert capsys.readouterr().out == by_flag
    write(path, "mo ^mine_\n")
    assert main(["classify", trace, "--json"]) == 2
    assert f"argus classify: {path}:1: no such class" in capsys.readouterr().err


def test_what_can_not_be_used_is_said(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify"]) == 2
    assert "name at least one trace" in capsys.readouterr().err
    assert main(["classify", str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file or directory" in capsys.readouterr().err
    no_gpu = kineto(tmp_path / "cpu.json", {"name": "aten::mm", "cat": "cpu_op", "dur": 1})
    assert main(["classify", no_gpu]) == 2
    assert "cpu.json: no GPU kernels; profile with ProfilerActivity.CUDA" in capsys.readouterr().err
    assert main(["classify", no_gpu, trace, "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["classes"]["gemm"]["count"] == 2
    assert "left out: " in err
    (tmp_path / "rows.csv").write_text("rank,iteration,phase,kind,start,duration\n0,0,a,compute,0,1\n")
    assert main(["classify", str(tmp_path / "rows.csv")]) == 2
    assert "rows.csv: not a Kineto file" in capsys.readouterr().err


def test_other_files_of_a_folder_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto(tmp_path / "rank0.json", {"name": "ampere_sgemm", "cat": "kernel", "dur": 1})
    (tmp_path / "README.md").write_text("# Traces\n")
    (tmp_path / "rows.csv").write_text("rank,iteration,phase,kind,start,duration\n0,0,a,compute,0,1\n")
    assert main(["classify", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().err == (
        f"argus classify: left out: {tmp_path}: files of other kinds (2 times); first: README.md\n"
    )


def test_the_classes_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--list"]) == 0
    assert tuple(capsys.readouterr().out.split()) == _native.kernel_classes()
