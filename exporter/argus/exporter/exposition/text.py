"""Prometheus's text format 0.0.4 and OpenMetrics text 1.0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from argus.catalogue import Metric
from argus.exporter.exposition.buckets import Indices, classic_bounds, classic_index, cumulative
from argus.exporter.exposition.families import CLASSIC_EXPONENTS, Family, Histogram, Summary, Value

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Sample(NamedTuple):
    """One line of the text formats.

    Attributes:
        name: With its suffix (``_bucket``, ``_sum``, ``_count``).
        labels: As written, without the braces.
        value: As written.
    """

    name: str
    labels: str
    value: str


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


def samples(family: Family, classic: Sequence[int] = CLASSIC_EXPONENTS) -> Iterator[Sample]:
    """The lines of a family; ``classic`` are the exponents of its classic bucket bounds."""
    metric = family.metric
    bounds = [f'le="{bound!r}"' for bound in classic_bounds(classic)]
    index = classic_index(classic)
    quantiles = [f'quantile="{quantile}"' for quantile in metric.quantiles]
    names = tuple(f'{name}="' for name in metric.labels)
    for values, value in family.series:
        labels = ",".join([name + escape(text) + '"' for name, text in zip(names, values, strict=True)])
        yield from _expand(metric, labels, value, bounds, index, quantiles)


def _expand(
    metric: Metric, labels: str, value: Value, bounds: list[str], index: Indices, quantiles: list[str]
) -> Iterator[Sample]:
    prefix = labels + "," if labels else ""
    name = metric.name
    if isinstance(value, Histogram):
        counts, total = cumulative(value.counts, index)
        bucket = name + "_bucket"
        for bound, count in zip(bounds, counts, strict=True):
            yield Sample(bucket, prefix + bound, str(count))
        yield Sample(bucket, prefix + 'le="+Inf"', str(total))
        yield Sample(name + "_sum", labels, number(value.sum))
        yield Sample(name + "_count", labels, str(total))
    elif isinstance(value, Summary):
        for quantile, number_ in zip(quantiles, value.quantiles, strict=True):
            yield Sample(name, prefix + quantile, number(number_))
        yield Sample(name + "_sum", labels, number(value.sum))
        yield Sample(name + "_count", labels, str(value.count))
    else:
        yield Sample(name, labels, number(value))


def encode(
    families: Iterable[Family], openmetrics: bool = False, classic: Sequence[int] = CLASSIC_EXPONENTS
) -> bytes:
    """Encode families.

    Args:
        families: As the registry collects them.
        openmetrics: OpenMetrics instead of the older text format.
        classic: Exponents k of the classic histogram bounds 2**k s; empty leaves only ``+Inf``.
    """
    lines: list[str] = []
    for family in families:
        metric = family.metric
        head = metric.name
        help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        if openmetrics:
            help_text = help_text.replace('"', r"\"")
            if metric.type == "counter":
                head = head.removesuffix("_total")
        lines.append(f"# HELP {head} {help_text}\n# TYPE {head} {metric.type}\n")
        lines.extend(
            f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"
            for name, labels, value in samples(family, classic)
        )
    if openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()
