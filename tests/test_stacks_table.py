"""From a segment's stacks to what people and tools read; and categories by names."""

from __future__ import annotations

import json
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argus import _native
from argus.cli import main
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource
from argus.exporter.stacks.pages import StackPages
from argus.flight.recording import record_memory
from argus.segment import layout
from argus.segment.sections import SegmentError
from argus.stacks import formats
from argus.stacks.render import RenderError, render
from argus.stacks.table import Stack, StackTable, take
from native_support import CONSTANTS, LAYOUT, wait_for

MAIN, OTHERS = "training thread", "other threads"
TABLE = StackTable(
    begin_ns=0,
    end_ns=30_000_000_000,
    cut=0,
    stacks=(
        Stack((MAIN, "train.py:main", "torch.serialization:save"), 12, "checkpoint", 200),
        Stack((MAIN, "train.py:main", "a b;c:d"), 7, "training", 100),
        Stack((OTHERS, "threading:Thread.run"), 0, "other", 300),
    ),
)


def test_folded() -> None:
    assert formats.folded(TABLE).splitlines() == [
        "training_thread;train.py:main;torch.serialization:save 200",
        "training_thread;train.py:main;a_b,c:d 100",
        "other_threads;threading:Thread.run 300",
    ]


def test_speedscope() -> None:
    """What https://www.speedscope.app/file-format-schema.json requires of a sampled profile."""
    document = json.loads(formats.speedscope(TABLE, "rank 0", 0.1))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(document) <= {"$schema", "name", "exporter", "activeProfileIndex", "shared", "profiles"}
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) and set(frame) <= {"name", "file"} for frame in frames)
    assert [profile["name"] for profile in document["profiles"]] == [MAIN, OTHERS]
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "seconds", 0)
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
        assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
    first = document["profiles"][0]
    assert [frames[index]["name"] for index in first["samples"][0]] == [
        "train.py:main",
        "torch.serialization:save",
    ]
    assert first["weights"] == [20.0, 10.0]


def test_text_says_most_first() -> None:
    shown = formats.text(TABLE, "rank 0", 0.1)
    assert "rank 0: the last 30 s" in shown
    assert " 66.7%  checkpoint\n 33.3%  training\n" in shown
    assert " 66.7%  torch.serialization:save line 12  [checkpoint]\n        train.py:main\n" in shown
    assert shown.index("== training thread (300 samples)") < shown.index("== other threads")


@pytest.mark.parametrize(
    ("stack", "phase", "category"),
    [
        ("train.py:step", "training", "training"),
        ("train.py:step", "collective_wait", "collective_wait"),
        ("torch.nn.modules.linear:Linear.forward train.py:step", "training", "kernel_launch"),
        ("train.py:Block.forward torch.nn.modules.module:Module._call_impl", "training", "training"),
        ("torch.nn.functional:pad my_data:crop", "data_loading", "data_loading"),
        ("torch.cuda:synchronize train.py:step", "training", "device_sync"),
        ("torch.cuda:synchronize torch.utils.data.dataloader:collate", "training", "data_loading"),
        ("torch.distributed.distributed_c10d:all_reduce train.py:step", "training", "collective_wait"),
        ("torch.distributed.distributed_c10d:get_rank train.py:step", "training", "training"),
        ("torch.distributed.distributed_c10d:gather torch.distributed.checkpoint:x", "other", "checkpoint"),
        ("torch.nn.functional:relu torch._dynamo.convert_frame:_compile x.py:x", "other", "jit_compile"),
        ("train.py:f torch._dynamo.eval_frame:_fn train.py:x", "training", "training"),
        ("torch._dynamo.convert_frame:<module> train.py:<module>", "other", "other"),
        ("triton.runtime.jit:JITFunction.run train.py:x", "training", "kernel_launch"),
        ("triton.compiler.compiler:compile triton.runtime.jit:JITFunction.run", "training", "jit_compile"),
        ("torch.utils.checkpoint:checkpoint train.py:x", "training", "kernel_launch"),
        ("", "other", "other"),
    ],
)  # fmt: skip
def test_categories(stack: str, phase: str, category: str) -> None:
    assert _native.stack_category(stack.split(), phase) == category


def test_own_patterns_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "patterns"
    path.write_text("# ours\ncheckpoint ^my_trainer:*.SAVE$\ndata_loading ^torch.nn.\n")
    patterns, complaint = _native.read_stack_patterns(path)
    assert (patterns is not None, complaint) == (True, "")

    def found(*names: str) -> str:
        return _native.stack_category(list(names), "training", patterns)

    assert found("my_trainer:Trainer.save", "torch.nn.functional:relu") == "checkpoint"
    assert found("torch.nn.functional:relu", "my_trainer:Trainer.save") == "data_loading"
    assert found("torch.cuda:synchronize", "my_trainer:Trainer.save") == "checkpoint"
    assert found("my_trainer:Trainer.saver") == "training"
    assert main(["stacks", "--check", str(path)]) == 0
    path.write_text("nonsense ^x\n")
    assert main(["stacks", "--check", str(path)]) == 1
    assert (
        f"{path}:1: no such category; argus stacks --list names them: 'nonsense'" in capsys.readouterr().err
    )
    assert main(["stacks", "--list"]) == 0
    listing = capsys.readouterr().out
    assert all(name in listing for name in _native.stack_categories())


@pytest.fixture(scope="module")
def sampled() -> bytes:
    """A segment with stacks of this thread."""
    segment = _native.Segment(None, run_id="run", rank=5, stacks=True)
    _native.start(segment)
    _native.stacks_start(segment, threading.get_ident(), 100.0)
    wait_for(lambda: _native.stacks_status()["samples"] > 20, "samples")
    _native.stacks_stop()
    content = segment.snapshot()
    _native.stop()
    return content


class Held:
    """A segment of bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def snapshot(self) -> bytes:
        return self._content


def place(content: bytes) -> int:
    at = LAYOUT["structs"]["header"]["fields"]["section"][0]
    for i in range(CONSTANTS["MAX_SECTIONS"]):
        number, _, _, _, offset = struct.unpack_from("=IIIIQ", content, at + 24 * i)
        if number == CONSTANTS["SECTION_STACK_GENERATIONS"]:
            return int(offset)
    raise AssertionError


def read(content: bytes) -> StackTable | None:
    return take(lambda offset, length: content[offset : offset + length], len(content))


def damaged(content: bytes, change: Any) -> StackTable | None:
    copy = bytearray(content)
    dtype = layout.ON_DEMAND_RECORDS["STACK_GENERATIONS"]
    change(np.frombuffer(copy, dtype, CONSTANTS["STACK_GENERATIONS"], place(content)))
    return read(bytes(copy))


def test_what_is_not_possible_is_left_out(sampled: bytes) -> None:
    whole = read(sampled)
    assert whole is not None
    assert whole.samples >= 20

    def points_forward(generations: Any) -> None:
        generations["node"]["parent"][:, :1_000] = 2_000

    def names_nothing(generations: Any) -> None:
        generations["node"]["name"][:, :] = 1 << 31

    def claims_more(generations: Any) -> None:
        generations["nodes"][:] = generations["text"][:] = 1 << 60

    def counts_beyond_reason(generations: Any) -> None:
        generations["node"]["samples"][:, :] = (1 << 64) - 1

    def is_a_ring(generations: Any) -> None:
        generations["node"]["parent"][:, :] = np.arange(1, CONSTANTS["STACK_NODES"] + 1)

    for change in (points_forward, names_nothing, counts_beyond_reason, is_a_ring):
        table = damaged(sampled, change)
        assert table is not None
        assert table.stacks == ()
    table = damaged(sampled, claims_more)
    assert table is not None
    assert table.stacks == whole.stacks


def test_names_can_not_break_a_terminal_or_a_line(sampled: bytes) -> None:
    def garbage(generations: Any) -> None:
        names = bytearray(generations["names"][0])
        names[:] = b"\x1b[2J\n\xff;".ljust(len(names), b"x")
        generations["names"][0] = bytes(names)

    table = damaged(sampled, garbage)
    assert table is not None
    for text in (
        formats.folded(table),
        formats.text(table, "rank", 0.1),
        formats.speedscope(table, "rank", 0.1),
    ):
        assert "\x1b" not in text
    assert len(formats.folded(table).splitlines()) == len(table.stacks)


def test_a_section_beyond_the_file(sampled: bytes) -> None:
    with pytest.raises(SegmentError):
        read(sampled[:-1])


def test_a_generation_in_use_again_is_left_out(sampled: bytes) -> None:
    def used_again(generations: Any) -> None:
        generations["ordinal"][:] = 0

    table = damaged(sampled, used_again)
    assert table is not None
    assert table.stacks == ()


def test_a_copy_is_taken_while_the_sampler_writes() -> None:
    segment = _native.Segment(None, run_id="run", rank=5, stacks=True)
    _native.start(segment)
    _native.stacks_start(segment, threading.get_ident(), 100.0)
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            table = read(segment.snapshot())
            assert table is not None
            assert all(stack.functions[0] in (MAIN, OTHERS) for stack in table.stacks)
    finally:
        _native.stacks_stop()
        _native.stop()


def test_pages_and_what_they_refuse(sampled: bytes) -> None:
    source = MemorySource([Held(sampled)])
    pages = StackPages([source], None)

    def get(path: str, query: str = "") -> tuple[int, str]:
        page = pages.get(path, query)
        assert page is not None
        return page.status, page.body.decode()

    status, listing = get("/stacks")
    assert status == 200
    assert "/stacks/now?run_id=run&amp;rank=5&amp;format=speedscope" in listing
    status, text = get("/stacks/now", "rank=5")
    assert status == 200
    assert "rank 5 (pp0) of run run" in text
    assert json.loads(get("/stacks/now", "rank=5&format=speedscope&run_id=run")[1])["profiles"]
    assert get("/stacks/now", "rank=x") == (400, "a rank is a whole number\n")
    assert get("/stacks/now", "format=svg")[0] == 400
    assert get("/stacks/now", "depth=3")[0] == 400
    assert get("/stacks/now", "rank=6")[0] == 404
    assert pages.get("/stacks/../../etc/passwd", "") is None
    families = {family.metric.name: family for family in Registry(source).collect(1 << 40)}
    samples = families["argus_cpu_samples_total"].series
    assert {labels[-1] for labels, _ in samples} <= set(_native.stack_categories())


def test_ranks_without_stacks_say_why() -> None:
    segment = _native.Segment(None, run_id="run", rank=5)
    recording = record_memory(segment, True, _native.monotonic_ns())
    with pytest.raises(RenderError, match="rank 5 of run run does not sample its stacks: ARGUS_STACKS is 0"):
        render([recording], "text")
