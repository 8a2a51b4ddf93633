"""Prometheus's text format 0.0.4 and OpenMetrics text 1.0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from argus.catalogue import Metric
from argus.exporter.exposition.buckets import Indices, classic_bounds, classic_index, cumulative
from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.families import Family, Histogram, Summary

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def number(value: float) -> str:
    """A value as Prometheus reads it."""
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(float(value))


def escape(value: str) -> str:
    """Escape a label's value."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def encode(
    families: Iterable[Family], openmetrics: bool = False, classic: Classic = Classic.ITERATIONS
) -> bytes:
    """Encode families.

    Args:
        families: As the registry collects them.
        openmetrics: OpenMetrics instead of the older text format.
        classic: Which histograms have buckets; the others have ``+Inf`` only.
    """
    lines: list[str] = []
    for family in families:
        metric = family.metric
        exponents = classic.in_text(metric)
        bounds, index = [f'le="{bound!r}"' for bound in classic_bounds(exponents)], classic_index(exponents)
        lines.append(_head(metric, openmetrics))
        names = [f'{name}="' for name in metric.labels]
        for values, value in family.series:
            pairs = [name + escape(text) + '"' for name, text in zip(names, values, strict=True)]
            if isinstance(value, Histogram):
                lines += _histogram(metric.name, pairs, value, bounds, index)
            elif isinstance(value, Summary):
                lines += _summary(metric, pairs, value)
            else:
                lines.append(f"{metric.name}{_braces(pairs)} {number(value)}\n")
    if openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _head(metric: Metric, openmetrics: bool) -> str:
    name = metric.name
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        help_text = help_text.replace('"', r"\"")
        if metric.type == "counter":
            name = name.removesuffix("_total")
    return f"# HELP {name} {help_text}\n# TYPE {name} {metric.type}\n"


def _braces(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _histogram(
    name: str, pairs: list[str], value: Histogram, bounds: list[str], index: Indices
) -> Iterator[str]:
    counts, total = cumulative(value.counts, index)
    bucket = f"{name}_bucket{{{','.join([*pairs, ''])}"
    for bound, count in zip(bounds, counts, strict=True):
        yield f"{bucket}{bound}}} {count}\n"
    yield f'{bucket}le="+Inf"}} {total}\n'
    labels = _braces(pairs)
    yield f"{name}_sum{labels} {number(value.sum)}\n{name}_count{labels} {total}\n"


def _summary(metric: Metric, pairs: list[str], value: Summary) -> Iterator[str]:
    name = metric.name
    quantiles = f"{name}{{{','.join([*pairs, 'quantile='])}"
    for quantile, seconds in zip(metric.quantiles, value.quantiles, strict=True):
        if seconds is not None:
            yield f'{quantiles}"{quantile}"}} {number(seconds)}\n'
    if value.totals:
        labels = _braces(pairs)
        yield f"{name}_sum{labels} {number(value.sum)}\n{name}_count{labels} {value.count}\n"
