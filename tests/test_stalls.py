"""Stalls without torch: collections of garbage, what is hooked on import, what fails, and data."""

from __future__ import annotations

import gc
import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import argus
from argus import _native
from argus.stalls import watch
from argus.stalls.blocking import Blocking
from argus.stalls.imports import ImportWatch
from argus.stalls.patches import Patches
from argus.stalls.stall import Stall
from stalls_support import enabled, occurrences, open_block, seconds, tracer

MS = 1_000_000


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tracer(tmp_path, monkeypatch):
        yield


class Clock:
    """The tracer's clock, held still; a collection of garbage lasts as long as is said."""

    def __init__(self) -> None:
        self.now = _native.monotonic_ns()
        self.collection = 0
        self.pass_by(0)

    def pass_by(self, ns: int) -> None:
        self.now += ns
        _native.set_clock(self.now)

    def while_collecting(self, moment: str, _info: object) -> None:
        if moment == "start":
            self.pass_by(self.collection)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Automatic collections are off, from before the tracer's start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def clock(uncollected: None, traced: None) -> Iterator[Clock]:
    """Only collections that a test asks for are seen."""
    clock = Clock()
    gc.callbacks.append(clock.while_collecting)  # behind the tracer's own
    try:
        yield clock
    finally:
        gc.callbacks.remove(clock.while_collecting)
        _native.set_clock(0)


def test_a_collection_is_a_phase_and_taken_out_of_the_one_that_it_interrupts(clock: Clock) -> None:
    clock.collection = 50 * MS
    with argus.iteration():
        with argus.phase("forward"):
            clock.pass_by(10 * MS)
            gc.collect()
            clock.pass_by(5 * MS)
        clock.collection = 99_999  # ns; a tenth of a millisecond is the least
        with argus.phase("backward"):
            gc.collect()
        clock.collection = 7 * MS
        gc.collect(0)  # in no phase
    assert seconds("gc") == [0.057]
    assert seconds("forward") == [0.015]
    assert seconds("backward") == [0.000099999]
    assert occurrences("gc") == 2
    assert argus.phase("gc").kind == "host"


@pytest.mark.parametrize(("kind", "gc_seconds"), [("compute", 0.02), ("communication", 0.0), ("mixed", 0.0)])
def test_a_collection_of_another_thread_stalls_only_who_does_not_wait(
    clock: Clock, kind: str, gc_seconds: float
) -> None:
    # It holds the GIL, but a loop that waits for its peers without the GIL loses nothing by it.
    clock.collection = 20 * MS
    with argus.iteration(), argus.phase(f"{kind} phase", kind=kind):
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    assert sum(seconds("gc")) == gc_seconds
    assert seconds(f"{kind} phase") == [pytest.approx(0.02 - gc_seconds)]


def test_a_collection_in_the_loops_own_collective_counts(clock: Clock) -> None:
    clock.collection = 20 * MS
    with argus.iteration(), argus.collective("all_gather_object"):
        gc.collect()
    assert seconds("gc") == [0.02]
    assert seconds("all_gather_object") == [0.0]


def test_a_collection_in_a_pause_did_not_happen(clock: Clock) -> None:
    clock.collection = 20 * MS
    with argus.iteration(), argus.pause("checkpoint"):
        gc.collect()
    assert occurrences("gc") == 0


def test_what_finalizers_record_is_not_counted_twice(clock: Clock) -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            with argus.phase("closing", kind="host"):
                clock.pass_by(4 * MS)

    clock.collection = 6 * MS
    with argus.iteration(), argus.phase("forward"):
        Knot()
        gc.collect()
    recorded = [seconds(phase)[0] for phase in ("gc", "closing", "forward")]
    assert sum(recorded) == pytest.approx(0.01)
    assert recorded[1] == 0.004


def test_the_collector_stays_as_it_is_and_finish_takes_everything_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks, finders = list(gc.callbacks), list(sys.meta_path)
    before = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
    with tracer(tmp_path, monkeypatch):
        assert gc.callbacks == [*callbacks, _native.on_collection]
        assert enabled("stalls") is True
        argus.init()  # again: nothing is hooked twice
        assert gc.callbacks.count(_native.on_collection) == 1
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == before
    assert (gc.callbacks, sys.meta_path) == (callbacks, finders)


def test_stalls_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks, finders = list(gc.callbacks), list(sys.meta_path)
    with tracer(tmp_path, monkeypatch, ARGUS_STALLS="0"):
        assert (gc.callbacks, sys.meta_path) == (callbacks, finders)
        assert enabled("stalls") is None


# ---- hooks on import ----

SHOP = '''
"""A library."""
class Till:
    def ring(self, price):
        return price + 1

def save(path, *, watching):
    return path, watching()
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A library that can be imported, and is not yet."""
    name = "argus_test_shop"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_a_module_is_seen_when_it_is_imported_and_is_none_the_wiser(shop: str) -> None:
    watched = ImportWatch()
    seen: list[str] = []
    watched.when_imported(shop, lambda module: seen.append(module.Till.__name__))
    assert not seen
    module = importlib.import_module(shop)
    assert seen == ["Till"]
    assert type(module.__loader__) is type(importlib.import_module("argus").__loader__)
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert "price + 1" in inspect.getsource(module.Till)
    importlib.reload(module)
    watched.when_imported(shop, lambda module: seen.append("there already"))
    assert seen == ["Till", "there already"]
    watched.close()
    assert watched not in sys.meta_path


def test_a_module_that_is_not_there_stays_an_import_error() -> None:
    watched = ImportWatch()
    watched.when_imported("argus_test_nowhere", lambda module: pytest.fail("it is nowhere"))
    with pytest.raises(ModuleNotFoundError, match="argus_test_nowhere"):
        importlib.import_module("argus_test_nowhere")
    watched.close()


def test_patches_are_undone_and_leave_what_others_put_over_them(shop: str) -> None:
    module: Any = importlib.import_module(shop)
    save, ring, till = module.save, module.Till.ring, module.Till()
    patches = Patches()
    assert patches.function((shop, "not.imported"), "save", lambda old: lambda: old)
    assert patches.attribute(module.Till, "ring", lambda old: lambda self, price: 10 * old(self, price))
    assert patches.attribute(till, "ring", lambda old: lambda price: -old(price))
    assert not patches.attribute(module.Till, "count", lambda old: old)
    assert till.ring(1) == -20
    patches.undo()
    assert (module.save, module.Till.ring, vars(till)) == (save, ring, {})

    patches.function((shop,), "save", lambda old: lambda: "ours")
    module.save = lambda: "theirs"
    patches.undo()
    assert module.save() == "theirs"


def hook(shop: str, monkeypatch: pytest.MonkeyPatch, install: Any) -> None:
    monkeypatch.setattr(watch, "HOOKS", (watch._Hook("the shop", "checkpoint", shop, install),))


def test_a_blocking_call_is_a_pause_while_it_lasts(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(shop, monkeypatch, Blocking((shop,), ("save", "gone")))
    with tracer(tmp_path, monkeypatch):
        module: Any = importlib.import_module(shop)
        assert module.save(1, watching=open_block) == (1, ("checkpoint", "pause"))
        # One inside another is a part of it.
        inner = lambda: (module.save(2, watching=open_block), open_block())  # noqa: E731
        assert module.save(1, watching=inner) == (1, ((2, ("checkpoint", "pause")), ("checkpoint", "pause")))
        assert open_block() is None
        with pytest.raises(ZeroDivisionError):
            module.save(1, watching=lambda: 1 / 0)
        assert open_block() is None
        # A copy that is written in the background keeps nobody waiting.
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(module.save(1, watching=open_block)))
        thread.start()
        thread.join()
        assert found == [(1, None)]
        wrapped = module.save
    assert inspect.signature(module.save) == inspect.signature(wrapped)
    assert module.save is not wrapped
    assert wrapped(1, watching=lambda: 5) == (1, 5), "kept by somebody, and inert now"


def test_a_hook_that_does_not_fit_is_said_once_and_harms_nothing_else(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook(shop, monkeypatch, Blocking((shop,), ("sell",)))
    with caplog.at_level(logging.WARNING), tracer(tmp_path, monkeypatch):
        module: Any = importlib.import_module(shop)
        assert module.save(1, watching=lambda: 2) == (1, 2)
        assert enabled("stalls") is False
        assert enabled("phases") is True
        assert _native.on_collection in gc.callbacks
    (line,) = [record.getMessage() for record in caplog.records if "the shop" in record.getMessage()]
    assert "checkpoint of the shop is not seen" in line
    assert "none of sell" in line


def test_a_hook_that_fails_turns_off_itself_only(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __enter__(self) -> None:
            raise OSError("nothing goes")

    hook(shop, monkeypatch, Blocking((shop,), ("save",)))
    monkeypatch.setattr(_native, "pause", lambda kind: Broken())
    with caplog.at_level(logging.WARNING), tracer(tmp_path, monkeypatch):
        module: Any = importlib.import_module(shop)
        for _ in range(2):
            assert module.save(1, watching=lambda: 2) == (1, 2)
        assert (enabled("stalls"), enabled("phases")) == (False, True)
    (line,) = [record.getMessage() for record in caplog.records if "nothing goes" in record.getMessage()]
    assert line.startswith("argus: checkpoint is not seen any more: OSError")


def test_of_two_threads_that_begin_at_the_same_moment_one_begins(
    traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause whose begin nobody remembers would never end, and hide a hang."""
    complaints: list[str] = []
    stall = Stall("checkpoint", complaints.append)
    choose, others = stall._choose, []

    def choose_while_another_begins() -> Any:
        others.append(stall.begin())
        return choose()

    monkeypatch.setattr(stall, "_choose", choose_while_another_begins)
    for _ in range(2):
        assert stall.begin()
        assert open_block() is not None
        stall.end()
        assert open_block() is None
    assert others == [False, False]
    assert complaints == []


# ---- argus.data ----


def test_data_times_what_the_loop_waits_for(clock: Clock) -> None:
    class Loader:
        batch_size = 2

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            for batch in range(3):
                clock.pass_by((batch + 1) * MS)
                yield batch

    loader = argus.data(Loader())
    assert (len(loader), loader.batch_size) == (3, 2)
    for epoch in range(2):
        batches = []
        for batch in loader:
            with argus.iteration():
                clock.pass_by(10 * MS)
            batches.append(batch)
        assert batches == [0, 1, 2], epoch
    # An iteration begins where the last one ended; the first of all with its block.
    assert seconds("data_loading") == [0.0, 0.002, 0.003, 0.001, 0.002, 0.003]


def test_data_of_an_iterator_is_an_iterator(traced: None) -> None:
    batches = argus.data(iter("ab"))
    assert next(batches) == "a"
    assert list(batches) == ["b"]
    with pytest.raises(StopIteration):
        next(batches)
    assert occurrences("data_loading") == 4
    with pytest.raises(AttributeError, match="epoch"):
        argus.data([1]).epoch  # noqa: B018


def test_data_that_fails_leaves_nothing_open(traced: None) -> None:
    def batches() -> Iterator[int]:
        assert open_block() == ("data_loading", "host")
        yield 1
        raise OSError("the disk is gone")

    loader = iter(argus.data(batches()))
    assert next(loader) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(loader)
    assert open_block() is None
