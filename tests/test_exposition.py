"""Text, OpenMetrics, protobuf: against promtool, prometheus_client's parsers, a real Prometheus."""

from __future__ import annotations

import bisect
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

import argus
from argus import _native, catalogue
from argus.exporter.collectors import RANK_COLLECTORS
from argus.exporter.exposition import buckets, negotiate, protobuf, text
from argus.exporter.exposition.classic import EXPONENTS, ITERATION_EXPONENTS, Classic
from argus.exporter.exposition.families import Family, Histogram, Point, Summary, group
from argus.exporter.registry import Registry
from argus.exporter.service import Exporter, Options
from argus.exporter.sources import MemorySource, Rank
from argus.prometheus import Prometheus, binary_version
from exporter_support import messages, segment, series, until

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
SECOND = 1_000_000_000


def _job() -> tuple[MemorySource, int]:
    """Two ranks with everything in their segments, all times fixed; and the time to look."""
    now = 1_000 * SECOND
    ranks = []
    for number in range(2):
        rank = segment(
            number, run_id='job "7"\\x', node=f"node{number}", local_rank=0, world_size=2, attempt=1,
            dp=number, tp=0, pp=0, cp=0, ep=0, gpu_uuid=f"GPU-{number}", pci_bus_id="0000:17:00.0",
        )  # fmt: skip
        rank_phases = [
            (rank.phase("forward", "compute"), 200_000_000 * (1 + number)),
            (rank.phase("data_loading", "host"), 1_500_000),
            (rank.phase("all_reduce", "communication"), 50_000_000),
        ]
        sync = rank.collective("all_reduce", "dp", "dp-0", members=2, nodes=2)
        end = now
        for iteration in range(5):
            for phase, duration in rank_phases:
                rank.observe_phase(phase, duration + 1_000_000 * iteration)
            rank.observe_collective(sync, 50_000_000 + 1_000_000 * iteration, 4_000_000)
            rank.work("tokens", "", 8_192)
            rank.work("tokens", "forward", 0.25)
            end += SECOND
            rank.end_iteration(100 + iteration, end, 700_000_000 + 1_000_000 * iteration)
        rank.sequence(sync, 5, 4 + number)
        rank.data_dependent(0)
        ranks.append(rank)
    ranks[0].open_phase(0, now + 6 * SECOND)
    ranks[1].pause("checkpoint", now + 7 * SECOND)
    return MemorySource(ranks), now + 90 * SECOND  # they stand still: sequence numbers are told


@pytest.fixture(scope="module")
def families() -> list[Family]:
    source, now = _job()
    return Registry(source).collect(now)


def test_golden_page(families: list[Family], request: pytest.FixtureRequest) -> None:
    page = text.encode(families)
    assert page == GOLDEN.read_bytes(), (
        f"the page changed; if that is meant: python {Path(__file__).name} > golden/{GOLDEN.name}"
    )


def test_promtool_accepts_the_golden_page(each_prometheus: Path) -> None:
    promtool = each_prometheus.with_name("promtool")
    result = subprocess.run(
        [promtool, "check", "metrics"], input=GOLDEN.read_bytes(), capture_output=True, timeout=60
    )
    assert (result.returncode, result.stderr.decode()) == (0, "")


def test_promtool_accepts_the_exporters_own_metrics(promtool: str) -> None:
    source, now = _job()
    page = text.encode(Registry(source, version="0.1").collect(now))
    result = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60)
    assert (result.returncode, result.stderr.decode()) == (0, "")


def test_everything_exposed_is_in_the_catalogue_and_the_other_way_round(families: list[Family]) -> None:
    source, now = _job()
    traced = segment(7)
    _native.start(traced)
    try:
        with argus.phase("forward"):
            pass
        registry = Registry(source, MemorySource([traced]), version="0.1")
        exposed = {family.metric.name for family in registry.collect(now)}
    finally:
        _native.stop()
    own = {name for name in exposed if name.startswith("argus_")}
    # Only a device has kernels, a GPU values, a sampled thread samples; only a clean end of a rank, a hang
    # or an alert tells of itself.
    assert set(catalogue.BY_NAME) - own == {
        "argus_kernel_attribution",
        "argus_kernel_seconds",
        "argus_window_kernel_seconds",
        "argus_tracer_gap_seconds_total",
        "argus_tracer_lost_iterations_total",
        "argus_tracer_memory_bytes",
        "argus_exporter_ranks_ended",
        "argus_exporter_stack_dumps_total",
        "argus_cpu_samples_total",
        *(name for name in catalogue.BY_NAME if name.startswith(("argus_gpu_", "argus_exporter_snapshots"))),
    }
    assert own <= set(catalogue.BY_NAME)
    for family in families:
        assert family.metric is catalogue.BY_NAME[family.metric.name]
        for labels, _ in family.series:
            assert len(labels) == len(family.metric.labels)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_parsers_of_prometheus_client_read_the_same_values(families: list[Family], openmetrics: bool) -> None:
    page = text.encode(families, openmetrics=openmetrics, classic=Classic.ALL).decode()
    parsed = list((parse_openmetrics if openmetrics else parse_text)(page))
    types = {family.name: family.type for family in parsed}
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parsed
        for sample in family.samples
    }
    expected: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    def expect(name: str, labels: dict[str, str], value: float, **more: str) -> None:
        expected[name, frozenset({**labels, **more}.items())] = value

    for family in families:
        metric = family.metric
        assert types[metric.name.removesuffix("_total")] == metric.type
        for values, value in family.series:
            labels = dict(zip(metric.labels, values, strict=True))
            if isinstance(value, Summary):
                for quantile, number in zip(metric.quantiles, value.quantiles, strict=True):
                    expect(metric.name, labels, number, quantile=quantile)
                expect(metric.name + "_sum", labels, value.sum)
                expect(metric.name + "_count", labels, value.count)
            elif isinstance(value, Histogram):
                for k in EXPONENTS:
                    within = int(value.counts[: (k + 20) * 8 + 1].sum())
                    expect(metric.name + "_bucket", labels, within, le=repr(2.0**k))
                total = int(value.counts.sum())
                expect(metric.name + "_bucket", labels, total, le="+Inf")
                expect(metric.name + "_sum", labels, value.sum)
                expect(metric.name + "_count", labels, total)
            else:
                expect(metric.name, labels, value)
    assert samples == expected


def test_text_without_classic_buckets_keeps_sum_and_count(families: list[Family]) -> None:
    page = text.encode(families, classic=Classic.NONE).decode()
    lines = [line for line in page.splitlines() if line.startswith("argus_iteration_seconds")]
    assert {line.split("{")[0] for line in lines} == {
        f"argus_iteration_seconds_{suffix}" for suffix in ("bucket", "sum", "count")
    }
    assert all('le="+Inf"' in line for line in lines if "_bucket" in line)


def test_by_default_only_iterations_have_classic_buckets_in_text(families: list[Family]) -> None:
    bounds: dict[str, set[str]] = {}
    for line in text.encode(families).decode().splitlines():
        name, _, rest = line.partition("_bucket{")
        if rest:
            bounds.setdefault(name, set()).add(rest.split(',le="')[1].split('"')[0])
    assert bounds.pop("argus_iteration_seconds") == {*(repr(2.0**k) for k in ITERATION_EXPONENTS), "+Inf"}
    assert set(ITERATION_EXPONENTS) < set(EXPONENTS)
    assert bounds == {"argus_phase_seconds": {"+Inf"}, "argus_collective_seconds": {"+Inf"}}


def test_a_rank_stays_within_its_budget_of_series() -> None:
    """10 phases, and 6 collectives on 2 communicators, payload and sequence numbers known."""
    rank = segment(node="n", local_rank=0, world_size=8, attempt=0)
    phases = [rank.phase(f"phase_{number}", "compute") for number in range(10)]
    collectives = [
        rank.collective(op, group, f"{group}-0", members=8, nodes=1)
        for op in ("all_reduce", "all_gather", "reduce_scatter")
        for group in ("dp", "tp")
    ]
    _native.start(rank)
    try:
        for number in range(4):
            for index in phases:
                rank.observe_phase(index, 1_000_000)
            for index in collectives:
                rank.observe_collective(index, 1_000_000, 1_000)
            rank.end_iteration(number, SECOND * (number + 1), SECOND)
        families = Registry(MemorySource([rank])).collect(5 * SECOND)
    finally:
        _native.stop()

    def samples(classic: Classic) -> int:
        lines = text.encode(families, classic=classic).decode().splitlines()
        return sum(not line.startswith("#") for line in lines)

    assert samples(Classic.ITERATIONS) <= 180
    assert samples(Classic.NONE) < samples(Classic.ITERATIONS) < samples(Classic.ALL)


def test_labels_are_escaped() -> None:
    metric = catalogue.RANKS_ENDED
    family = Family(metric, [(('a"b\\c\nd',), 1)])
    assert b'argus_exporter_ranks_ended{run_id="a\\"b\\\\c\\nd"} 1\n' in text.encode([family])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, "1"), (0.0, "0"), (0.25, "0.25"), (1e-9, "1e-09"), (2.0**60, "1.152921504606847e+18"),
        (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN"),
        (2**63, "9223372036854775808"),
    ],
)  # fmt: skip
def test_numbers(value: float, written: str) -> None:
    assert text.number(value) == written


def test_histogram_buckets_of_known_durations() -> None:
    durations = [1, 900, 954, 10_000, 976_563, 1_000_000, 999_999_999, 1_000_000_000, 1_000_000_001,
                 90 * SECOND, 4096 * SECOND, 5000 * SECOND]  # fmt: skip
    rank = segment()
    for duration in durations:
        rank.observe_phase(rank.phase("forward", "compute"), duration)
    [(_, histogram)] = [
        item
        for family in Registry(MemorySource([rank])).collect(0)
        if family.metric is catalogue.PHASE_SECONDS
        for item in family.series
    ]
    assert isinstance(histogram, Histogram)
    ordered = sorted(duration / 1e9 for duration in durations)

    counts, total = buckets.cumulative(histogram.counts, buckets.classic_index(EXPONENTS))
    assert counts == [bisect.bisect_right(ordered, 2.0**k) for k in EXPONENTS]
    assert total == len(durations)

    # Native buckets, expanded again: index i holds (2**((i-1)/8), 2**(i/8)] seconds.
    native = buckets.native(histogram.counts)
    assert len(native.deltas) == sum(length for _, length in native.spans)
    filled: dict[int, int] = {}
    index = count = 0
    deltas = iter(native.deltas)
    for offset, length in native.spans:
        index += offset
        for _ in range(length):
            count += next(deltas)
            filled[index] = count
            index += 1
    expected: dict[int, int] = {}
    for seconds in ordered:
        if seconds > buckets.ZERO_THRESHOLD:
            i = min(int(np.ceil(np.log2(seconds) * 8 - 1e-9)), 97)  # above 4,096 s: the first beyond
            expected[i] = expected.get(i, 0) + 1
    assert {i: n for i, n in filled.items() if n} == expected
    assert int(histogram.counts[0]) == 2  # 1 and 900 ns; 2**-20 s are 953.7 ns


def test_protobuf_says_what_the_families_say(families: list[Family]) -> None:
    decoded = list(messages(protobuf.encode(families)))
    assert [message.name for message in decoded] == [family.metric.name for family in families]
    for family, message in zip(families, decoded, strict=True):
        metric = family.metric
        assert message.help == metric.help
        for (labels, value), sample in zip(family.series, message.metric, strict=True):
            assert tuple(pair.value for pair in sample.label) == labels
            assert tuple(pair.name for pair in sample.label) == metric.labels
            if isinstance(value, Histogram):
                histogram = sample.histogram
                assert histogram.sample_count == histogram.bucket[-1].cumulative_count == value.counts.sum()
                assert [bucket.upper_bound for bucket in histogram.bucket] == [2.0**k for k in EXPONENTS]
                assert (histogram.schema, histogram.zero_threshold) == (3, 2.0**-20)
                count = population = 0
                for delta in histogram.positive_delta:
                    count += delta
                    population += count
                assert population + histogram.zero_count == histogram.sample_count
            elif isinstance(value, Summary):
                assert [item.quantile for item in sample.summary.quantile] == list(
                    map(float, metric.quantiles)
                )
                assert tuple(item.value for item in sample.summary.quantile) == tuple(value.quantiles)
                assert (sample.summary.sample_count, sample.summary.sample_sum) == (value.count, value.sum)
            else:
                assert getattr(sample, metric.type).value == value


def test_protobuf_without_classic_buckets(families: list[Family]) -> None:
    for message in messages(protobuf.encode(families, classic=Classic.NONE)):
        for sample in message.metric:
            assert not sample.histogram.bucket


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", negotiate.TEXT),
        ("*/*", negotiate.TEXT),
        ("text/html", negotiate.TEXT),
        ("text/plain;version=0.0.4", negotiate.TEXT),
        ("application/openmetrics-text", negotiate.OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.5", negotiate.TEXT),
        ("application/openmetrics-text;version=2.0.0", negotiate.TEXT),
        ("text/plain;q=0, application/openmetrics-text;q=0.1", negotiate.OPENMETRICS),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
         "application/openmetrics-text;version=1.0.0;q=0.6", negotiate.PROTOBUF),
        ("application/vnd.google.protobuf;encoding=text", negotiate.TEXT),
        ("application/vnd.google.protobuf;proto=other.Message", negotiate.TEXT),
        ("application/openmetrics-text;q=nonsense", negotiate.TEXT),
        (",,;;q=1,/", negotiate.TEXT),
    ],
)  # fmt: skip
def test_negotiation(accept: str, expected: negotiate.Format) -> None:
    assert negotiate.choose(accept) is expected


def test_one_failing_collector_loses_only_its_own(caplog: pytest.LogCaptureFixture) -> None:
    source, now = _job()

    def fails_for_rank_1(rank: Rank) -> Iterator[Point]:
        yield from RANK_COLLECTORS["phases"](rank)
        if rank.state.identity.rank == 1:
            raise RuntimeError("broken")

    registry = Registry(source, collectors={**RANK_COLLECTORS, "phases": fails_for_rank_1}, version="0.1")
    for _ in range(3):
        values = series(registry.collect(now))
    assert values["argus_exporter_collector_success", ("phases",)] == 0
    assert values["argus_exporter_collector_success", ("windows",)] == 1
    ranks = {labels[2] for name, labels in values if name == "argus_phase_seconds"}
    assert ranks == {"0"}
    assert {labels[2] for name, labels in values if name == "argus_window_phase_seconds"} == {"0", "1"}
    assert len(caplog.records) == 1


def test_a_failing_source_loses_only_its_ranks() -> None:
    source, now = _job()

    class Broken:
        def scan(self, now_ns: int) -> Any:
            raise OSError("gone")

    values = series(Registry(Broken(), source, version="0.1").collect(now))
    assert values["argus_exporter_collector_success", ("segments",)] == 0
    assert ("argus_rank_up", ('job "7"\\x', "pp0", "1")) in values


def test_disabled_collectors_are_silent() -> None:
    source, now = _job()
    families = Registry(source, disabled=("phases", "process", "segments"), version="0.1").collect(now)
    names = {family.metric.name for family in families}
    assert not names & {"argus_phase_seconds", "process_cpu_seconds_total", "argus_exporter_segments"}
    assert "argus_window_phase_seconds" in names


def test_a_series_twice_is_exposed_once() -> None:
    point = Point(catalogue.RANKS_ENDED, ("run",), 1)
    [family] = group([point, point._replace(value=2), point._replace(labels=("other",))])
    assert family.series == [(("run",), 1), (("other",), 1)]


def test_every_prometheus_reads_it_over_text_and_protobuf(each_prometheus: Path) -> None:
    source, _ = _job()
    rank = segment(run_id="live")
    forward = rank.phase("forward", "compute")
    now = _native.monotonic_ns()
    for number in range(1, 101):
        rank.observe_phase(forward, number * 10_000_000)  # 0.01 to 1 s
        rank.end_iteration(number, now, 1_500_000_000)
    options = Options(addresses=("127.0.0.1:0",), segments=Path("/nonexistent"), classic=Classic.ALL)
    with Exporter(options, MemorySource([rank]), source) as exporter:
        target = f"127.0.0.1:{exporter.servers[0].server_port}"
        config = (
            "global: {scrape_interval: 200ms}\n"
            f"scrape_configs: [{{job_name: argus, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        by_flag = binary_version(each_prometheus) < (3, 8, 0)
        native_config = (
            config if by_flag else config.replace("200ms}", "200ms, scrape_native_histograms: true}")
        )
        with (
            Prometheus(config, binary=each_prometheus) as classic,
            Prometheus(native_config, binary=each_prometheus, native_histograms=True) as native,
        ):
            for prometheus in (classic, native):
                until(lambda: bool(prometheus.client.query("argus_rank_up")), 30)  # noqa: B023
                assert [s.value for s in prometheus.client.query('argus_rank_up{run_id="live"}')] == [1]
                spread = prometheus.client.query('argus_window_phase_seconds{run_id="live"}')
                assert {sample.labels["quantile"]: sample.value for sample in spread} == {
                    "0.0": 0.37, "0.5": 0.685, "1.0": 1.0  # of the last 64 iterations
                }  # fmt: skip
                [total] = prometheus.client.query('argus_window_phase_seconds_sum{run_id="live"}')
                assert total.value == pytest.approx(50.5)
                assert len(prometheus.client.query(r'argus_rank_info{run_id="job \"7\"\\x"}')) == 2

            buckets_ = classic.client.query('argus_phase_seconds_bucket{run_id="live", le=~"0.0625|1.0|1"}')
            assert {sample.labels["le"]: sample.value for sample in buckets_} == {"0.0625": 6, "1.0": 100}
            query = native.client.query
            assert query('histogram_count(argus_phase_seconds{run_id="live"})')[0].value == 100
            assert query('histogram_sum(argus_phase_seconds{run_id="live"})')[0].value == pytest.approx(50.5)
            for quantile in (0.1, 0.5, 0.9):
                [sample] = query(f'histogram_quantile({quantile}, argus_phase_seconds{{run_id="live"}})')
                assert sample.value == pytest.approx(quantile, rel=0.09)  # one bucket is 9 % wide


if __name__ == "__main__":
    import sys

    job, moment = _job()
    sys.stdout.buffer.write(text.encode(Registry(job).collect(moment)))
