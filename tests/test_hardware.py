"""GPUs through NVML, with a stand-in for its library."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import argus.hardware
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource
from argus.hardware.gpus import Gpus
from argus.hardware.reading import bus_id
from argus.hardware.throttle import Throttle
from exporter_support import segment, series, until
from hardware_support import UUIDS, Nvml, libraries
from native_support import environment

NOBODY = ("", "", "")


@pytest.fixture(scope="module")
def library() -> Iterator[Nvml]:
    nvml = Nvml()
    yield nvml
    nvml.reset(0)
    nvml.answer_init(Nvml.NO_DRIVER)  # later tests in this process see a machine without GPUs


@pytest.fixture
def nvml(library: Nvml) -> Nvml:
    library.reset(2)
    for gpu in (0, 1):
        library.set(gpu, temperature__0=50 + gpu, events=8)
    return library


@contextmanager
def watched(**options: float) -> Iterator[Gpus]:
    gpus = Gpus(**{"interval_s": 0.02, "stale_s": 60.0, "retry_s": 0.02, **options})
    try:
        yield gpus
    finally:
        gpus.close()


def collected(gpus: Gpus, *ranks: Any) -> dict[tuple[str, tuple[str, ...]], Any]:
    return series(Registry(MemorySource(ranks), gpus=gpus, version="0").collect(1_000_000_000))


def of(values: dict[tuple[str, tuple[str, ...]], Any], name: str) -> dict[tuple[str, ...], float]:
    """A metric's series without the labels of the rank."""
    return {labels[3:]: value for (metric, labels), value in values.items() if metric == name}


def success(gpus: Gpus) -> float | None:
    return collected(gpus).get(("argus_exporter_collector_success", ("gpu",)))


def temperatures(gpus: Gpus) -> dict[int, float]:
    found = of(collected(gpus), "argus_gpu_temperature_celsius")
    return {UUIDS.index(labels[0]): value for labels, value in found.items()}


def test_values_have_base_units_and_what_is_unsupported_is_absent(nvml: Nvml) -> None:
    nvml.set(0, clock__1=1830, max_clock__1=1980, clock__2=2619, power=698_512, power_limit=700_000)
    nvml.set(0, energy=9_007_199_254_740_993, threshold__1=92, field__82=85, utilization=97, processes=3)
    nvml.set(0, ecc_corrected__0=4, ecc_uncorrected__1=1, rows_corrected=2, rows_pending=1)
    nvml.set(0, pcie_generation=4, pcie_max_generation=5, pcie_width=8, pcie_max_width=16, pcie_replays=12)
    nvml.set(0, field__38=7, field__59=0, **{f"link__{link}": int(link != 3) for link in range(18)})
    nvml.set(0, link_errors__0__0=5, link_errors__17__0=6, violation__0=1_500_000_000)
    nvml.set(1, field__82=0, pcie_width=0, pcie_replays=0xFFFFFFFF)
    with watched() as gpus:
        gpus.wait(20)
        values = collected(gpus)
    found = {
        (name.removeprefix("argus_gpu_"), labels[4:]): value
        for (name, labels), value in values.items()
        if name.startswith("argus_gpu_") and labels[3] == UUIDS[0] and "age" not in name
    }
    assert found == {
        ("info", ("0000:3a:00.0", "0", 'Stand-in "H100"', "570.00.01")): 1,
        ("up", ()): 1,
        ("clock_hertz", ("sm",)): 1.83e9,
        ("clock_max_hertz", ("sm",)): 1.98e9,
        ("clock_hertz", ("memory",)): 2.619e9,
        ("throttle_seconds_total", ("power",)): 1.5,
        ("temperature_celsius", ("gpu",)): 50,
        ("temperature_celsius", ("memory",)): 85,
        ("temperature_limit_celsius", ("gpu",)): 92,
        ("power_watts", ()): pytest.approx(698.512),
        ("power_limit_watts", ()): 700,
        ("energy_joules_total", ()): pytest.approx(9_007_199_254_740.993),
        ("ecc_errors_total", ("corrected", "volatile")): 4,
        ("ecc_errors_total", ("uncorrected", "aggregate")): 1,
        ("remapped_rows_total", ("corrected",)): 2,
        ("remapped_rows_total", ("uncorrected",)): 0,
        ("row_remap_pending", ()): 1,
        ("row_remap_failed", ()): 0,
        ("pcie_generation", ()): 4,
        ("pcie_generation_max", ()): 5,
        ("pcie_lanes", ()): 8,
        ("pcie_lanes_max", ()): 16,
        ("pcie_replays_total", ()): 12,
        ("nvlink_links", ("active",)): 17,
        ("nvlink_links", ("inactive",)): 1,
        ("nvlink_errors_total", ("crc_flit",)): 7,
        ("nvlink_errors_total", ("recovery",)): 0,
        ("nvlink_errors_total", ("replay",)): 11,  # no total of all links: the sum of each link's
        ("utilization_ratio", ()): pytest.approx(0.97),
        ("processes", ()): 3,
    }
    # What a GPU without the sensor, the bus or the counter says is no value.
    other = {name for (name, labels) in values if name.startswith("argus_gpu_") and labels[3] == UUIDS[1]}
    assert other == {
        f"argus_gpu_{name}" for name in ("info", "up", "reading_age_seconds", "temperature_celsius")
    }
    assert values["argus_exporter_collector_success", ("gpu",)] == 1


def test_throttling_is_counted_by_nvml_or_sampled(nvml: Nvml) -> None:
    thermal, hw_thermal, power = 0x20, 0x40, 0x4
    handle = nvml.handles[0]
    nvml.set(0, violation__0=7_000_000_000, reasons=thermal | power)
    throttle = Throttle(longest_s=10)

    def at(now: float) -> dict[str, float]:
        return {value.labels[0]: value.number for value in throttle.values(handle, now)}

    assert at(100.0) == {"power": 7, "thermal": 0, "sync_boost": 0, "hw_thermal": 0, "power_brake": 0}
    assert at(105.0)["thermal"] == 5
    nvml.set(0, reasons=hw_thermal, violation__0=7_250_000_000)
    assert at(110.0) == {"power": 7.25, "thermal": 5, "sync_boost": 0, "hw_thermal": 5, "power_brake": 0}
    # A reading that came late says nothing about the time between.
    assert at(1000.0)["hw_thermal"] == 15


def test_a_gpu_that_falls_off_the_bus_loses_only_its_own_values(
    nvml: Nvml, caplog: pytest.LogCaptureFixture
) -> None:
    with watched() as gpus:
        gpus.wait(20)
        assert temperatures(gpus) == {0: 50, 1: 51}
        nvml.lose(1)
        until(lambda: temperatures(gpus) == {0: 50})
        values = collected(gpus)
        assert of(values, "argus_gpu_up") == {(UUIDS[0],): 1, (UUIDS[1],): 0}
        assert len(of(values, "argus_gpu_info")) == 2
        assert success(gpus) == 1
        messages = [record.message for record in caplog.records if "fallen off the bus" in record.message]
        assert len(messages) == 1
        assert UUIDS[1] in messages[0]
        assert "0000:3b:00.0" in messages[0]
        nvml.lose(1, False)
        until(lambda: temperatures(gpus) == {0: 50, 1: 51})


def test_a_call_that_blocks_delays_no_scrape_and_no_other_gpu(
    nvml: Nvml, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(stale_s=1.0) as gpus:
        gpus.wait(20)
        nvml.hold(1)
        until(lambda: nvml.is_waiting(1))
        until(lambda: 1 not in temperatures(gpus))
        assert nvml.is_waiting(1), "it is still blocked while scrapes are answered"
        nvml.set(0, temperature__0=61)
        until(lambda: temperatures(gpus) == {0: 61})
        values = collected(gpus)
        assert success(gpus) == 0
        assert of(values, "argus_gpu_reading_age_seconds")[UUIDS[1],] > 1.0
        assert (UUIDS[1],) not in of(values, "argus_gpu_up")
        assert any(f"GPU 1 ({UUIDS[1]}) has not answered for" in record.message for record in caplog.records)
        nvml.hold(1, False)
        until(lambda: temperatures(gpus) == {0: 61, 1: 51} and success(gpus) == 1)


def test_closing_does_not_wait_for_a_call_that_blocks(nvml: Nvml) -> None:
    with watched() as gpus:
        gpus.wait(20)
        before = nvml.counts()
    assert nvml.counts()[1] == before[1] + 1
    with watched() as gpus:
        gpus.wait(20)
        nvml.hold(0)
        until(lambda: nvml.is_waiting(0))
        gpus.close()
        assert nvml.is_waiting(0)
        assert nvml.counts()[1] == before[1] + 1, "NVML is not shut down under a call"
    nvml.hold(0, False)


def test_xid_errors_are_counted_by_number(nvml: Nvml, caplog: pytest.LogCaptureFixture) -> None:
    nvml.set(1, events=0)
    with watched() as gpus:
        gpus.wait(20)
        assert of(collected(gpus), "argus_gpu_xid_errors_total") == {}
        for xid in (48, 63, 48):
            nvml.xid(0, xid)
        expected = {(UUIDS[0], "48"): 2, (UUIDS[0], "63"): 1}
        until(lambda: of(collected(gpus), "argus_gpu_xid_errors_total") == expected)
        ages = of(collected(gpus), "argus_gpu_xid_age_seconds")
        assert ages.keys() == expected.keys()
        assert all(0 <= age < 60 for age in ages.values())
    assert sum("Xid 48" in record.message for record in caplog.records) == 1


def test_gpus_are_joined_to_ranks(nvml: Nvml) -> None:
    nvml.set(1, mig=1)
    nvml.instance(1, 0, "MIG-aaaa")
    nvml.instance(1, 4, "MIG-bbbb")
    ranks = [
        segment(0, gpu_uuid=UUIDS[0], role="pp0"),
        segment(1, gpu_uuid="MIG-aaaa", pci_bus_id=""),
        segment(2, gpu_uuid="MIG-unknown", pci_bus_id="0000:3B:00.0"),
        segment(3, gpu_uuid="GPU-of-another-node", pci_bus_id="0000:99:00.0"),
        segment(4),
    ]
    with watched() as gpus:
        gpus.wait(20)
        found = collected(gpus, *ranks)
        alone = collected(gpus)
    temperature = {k[1]: v for k, v in found.items() if k[0] == "argus_gpu_temperature_celsius"}
    assert temperature == {
        ("run", "pp0", "0", UUIDS[0], "gpu"): 50,
        ("run", "pp0", "1", UUIDS[1], "gpu"): 51,
        ("run", "pp0", "2", UUIDS[1], "gpu"): 51,
    }
    # GPUs that nobody uses are told as well, without a rank; so are those of ranks that died.
    assert {labels[:3] for name, labels in alone if name == "argus_gpu_up"} == {NOBODY}
    ranks[0].close("failed")
    with watched() as gpus:
        gpus.wait(20)
        assert ("argus_gpu_up", (*NOBODY, UUIDS[0])) in collected(gpus, ranks[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("", ""),
    ],
)
def test_pci_addresses_are_written_as_in_sysfs(text: str, expected: str) -> None:
    assert bus_id(text) == expected


def test_without_a_driver_nothing_is_told_until_there_is_one(
    nvml: Nvml, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    nvml.answer_init(Nvml.NO_DRIVER)
    with watched() as gpus:
        gpus.wait(20)
        until(lambda: not gpus.present)
        assert not any("gpu" in str(key) for key in collected(gpus))
        nvml.answer_init(0)
        until(lambda: temperatures(gpus) == {0: 50, 1: 51})
    assert sum("no GPUs are watched" in record.message for record in caplog.records) == 1


def test_a_driver_that_is_reloaded_is_found_again(nvml: Nvml) -> None:
    with watched() as gpus:
        gpus.wait(20)
        nvml.unload()
        until(lambda: temperatures(gpus) == {})
        until(lambda: not gpus.present)
        nvml.load()
        until(lambda: temperatures(gpus) == {0: 50, 1: 51} and success(gpus) == 1)


def test_a_driver_that_does_not_fit_is_told_with_the_mend(
    nvml: Nvml, caplog: pytest.LogCaptureFixture
) -> None:
    nvml.answer_init(Nvml.MISMATCH)
    with watched() as gpus:
        until(lambda: success(gpus) == 0)
    assert any("restart the machine" in record.message for record in caplog.records)


def test_nvml_that_does_not_even_start_is_told(nvml: Nvml, caplog: pytest.LogCaptureFixture) -> None:
    nvml.hold(7)
    with watched(stale_s=0.2) as gpus:
        assert success(gpus) is None
        until(lambda: success(gpus) == 0)
        nvml.hold(7, False)
        until(lambda: success(gpus) == 1)
    assert any("NVML does not answer" in record.message for record in caplog.records)


def test_a_gpu_that_is_lost_from_the_start_is_missed(nvml: Nvml) -> None:
    nvml.lose(0)
    with watched() as gpus:
        until(lambda: temperatures(gpus) == {1: 51} and success(gpus) == 0)


RANK = """
import ctypes, sys
import argus
from argus import _native
if sys.argv[1] == "absent":
    cuda = None
else:
    cuda = ctypes.CDLL(sys.argv[2])
argus.init(run_id="gpu", rank=0, world_size=1)
def identity():
    from argus.segment.reader import read
    who = read(_native.own_segments()[0].snapshot(), _native.monotonic_ns()).identity
    return who.gpu_uuid, who.pci_bus_id
with argus.iteration():
    pass
print(identity())
if cuda is not None:
    cuda.standin_start(2, int(sys.argv[1] != "other thread"), int(sys.argv[1] == "mig"))
with argus.iteration():
    pass
print(identity())
print(cuda.standin_init_calls() if cuda is not None else 0)
"""


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("absent", ("", "")),
        ("started", ("GPU-00000000-0000-0000-0000-000000000002", "0000:3c:00.0")),
        ("new", ("GPU-00000000-0000-0000-0000-000000000002", "0000:3c:00.0")),
        ("other thread", ("GPU-00000000-0000-0000-0000-000000000002", "0000:3c:00.0")),
        ("mig", ("MIG-4d000000-0000-0000-0000-000000000002", "0000:3c:00.0")),
    ],
)
def test_a_rank_tells_its_gpu_once_cuda_is_in_use_and_never_starts_it(
    tmp_path: Path, case: str, expected: tuple[str, str]
) -> None:
    cuda = libraries() / ("new-libcuda.so.1" if case == "new" else "libcuda.so.1")
    result = subprocess.run(
        [sys.executable, "-c", RANK, case, str(cuda)],
        env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.stdout.splitlines() == ["('', '')", str(expected), "0"], result.stderr


def test_the_command_shows_gpus_and_leaves_them_out(tmp_path: Path, promtool: str) -> None:
    command = [sys.executable, "-m", "argus.cli", "exporter", "--once", "--segments.directory", str(tmp_path)]
    values = "2 0:temperature.0=61 0:violation.1=2500000000 0:events=8 1:link.0=1 1:rows_corrected=0"
    variables = {**os.environ, "LD_LIBRARY_PATH": str(libraries()), "STANDIN_NVML": values}

    def page(*flags: str) -> bytes:
        done = subprocess.run([*command, *flags], env=variables, capture_output=True, timeout=60, check=True)
        return done.stdout

    shown = page()
    labels = f'run_id="",role="",rank="",gpu_uuid="{UUIDS[0]}"'
    assert f'argus_gpu_temperature_celsius{{{labels},sensor="gpu"}} 61\n'.encode() in shown
    assert f'argus_gpu_throttle_seconds_total{{{labels},reason="thermal"}} 2.5\n'.encode() in shown
    check = subprocess.run(
        [promtool, "check", "metrics"], input=shown, capture_output=True, timeout=60, check=False
    )
    assert (check.returncode, check.stderr.decode()) == (0, "")
    assert b"argus_gpu_" not in page("--no-collector.gpu")


def test_nonsense_of_a_gpu_costs_that_gpu_only(nvml: Nvml) -> None:
    """Texts that are no UTF-8, a UUID twice, a count of billions, types and numbers that there are not."""
    nvml.reset(5)
    bus = b"00000000:3A:00.0"
    nvml.text(0, UUIDS[0].encode(), b"\xff:\xfe", b"H\xff100")
    nvml.text(1, b"GPU-\xff", bus, b"H100")
    nvml.text(3, UUIDS[2].encode(), bus, b"H100")
    for gpu in range(5):
        nvml.set(gpu, temperature__0=50 + gpu, field__82=(1 << 64) - 1, violation__0=(1 << 64) - 1, events=8)
    nvml.claim(0xFFFFFFFF)
    with watched() as gpus:
        gpus.wait(20)
        values = collected(gpus)
        assert temperatures(gpus) == {0: 50, 2: 52, 4: 54}
    assert of(values, "argus_gpu_info").keys() == {
        (UUIDS[0], "", "0", "", "570.00.01"),
        (UUIDS[2], "0000:3c:00.0", "2", 'Stand-in "H100"', "570.00.01"),
        (UUIDS[4], "0000:3e:00.0", "4", 'Stand-in "H100"', "570.00.01"),
    }
    assert values["argus_exporter_collector_success", ("gpu",)] == 0


def test_a_pynvml_that_cannot_be_used_is_said_and_nothing_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There are other packages of this name, which lack half of it."""
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))
    monkeypatch.delitem(sys.modules, "argus.hardware.nvml", raising=False)
    monkeypatch.delattr(argus.hardware, "nvml", raising=False)
    with watched() as gpus, caplog.at_level(logging.WARNING):
        gpus.wait(20)
        assert success(gpus) == 0
    assert "pip install -U nvidia-ml-py" in caplog.text
