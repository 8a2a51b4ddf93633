"""Prometheus's protobuf format: delimited ``MetricFamily`` messages, native histograms included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from argus.exporter.exposition.buckets import (
    SCHEMA,
    ZERO_THRESHOLD,
    Indices,
    classic_bounds,
    classic_index,
    cumulative,
    native,
)
from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.families import Family, Histogram, Summary
from argus.exporter.exposition.messages import METRIC_TYPES, MetricFamily

CONTENT_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def encode(families: Iterable[Family], classic: Classic = Classic.ITERATIONS) -> bytes:
    """Encode families, each preceded by its length.

    Histograms are native (schema 3), with classic buckets beside them for a Prometheus that does
    not read native ones.

    Args:
        families: As the registry collects them.
        classic: Whether there are classic buckets too.
    """
    exponents = classic.in_protobuf()
    bounds, index = classic_bounds(exponents), classic_index(exponents)
    parts: list[bytes] = []
    for family in families:
        encoded = _family(_without_totals(family), bounds, index).SerializeToString()
        parts += (_varint(len(encoded)), encoded)
    return b"".join(parts)


def _without_totals(family: Family) -> Family:
    """Summaries of which only quantiles are served, as gauges; any other family as it is.

    Of a summary Prometheus makes ``_sum`` and ``_count``, whether they are there or not.
    """
    metric = family.metric
    series = [
        ((*labels, quantile), number)
        for labels, value in family.series
        if isinstance(value, Summary) and not value.totals
        for quantile, number in zip(metric.quantiles, value.quantiles, strict=True)
        if number is not None
    ]
    if not series:
        return family
    return Family(replace(metric, type="gauge", labels=(*metric.labels, "quantile"), quantiles=()), [*series])


def _family(family: Family, bounds: Sequence[float], index: Indices) -> Any:
    metric = family.metric
    kind = metric.type if metric.type in METRIC_TYPES else "untyped"
    message = MetricFamily(name=metric.name, help=metric.help, type=METRIC_TYPES[kind])
    quantiles = tuple(map(float, metric.quantiles))
    for values, value in family.series:
        series = message.metric.add()
        for name, label in zip(metric.labels, values, strict=True):
            series.label.add(name=name, value=label)
        if isinstance(value, Histogram):
            _histogram(series.histogram, value, bounds, index)
        elif isinstance(value, Summary):
            series.summary.sample_count = value.count
            series.summary.sample_sum = value.sum
            for quantile, number in zip(quantiles, value.quantiles, strict=True):
                if number is not None:
                    series.summary.quantile.add(quantile=quantile, value=number)
        else:
            getattr(series, kind).value = value
    return message


def _histogram(message: Any, histogram: Histogram, bounds: Sequence[float], index: Indices) -> None:
    counts, total = cumulative(histogram.counts, index)
    message.sample_count = total
    message.sample_sum = histogram.sum
    for bound, count in zip(bounds, counts, strict=True):
        message.bucket.add(cumulative_count=count, upper_bound=bound)
    message.schema = SCHEMA
    # A threshold above zero is also what tells Prometheus that the histogram is native.
    message.zero_threshold = ZERO_THRESHOLD
    message.zero_count = int(histogram.counts[0])
    sparse = native(histogram.counts)
    for offset, length in sparse.spans:
        message.positive_span.add(offset=offset, length=length)
    message.positive_delta.extend(sparse.deltas)


def _varint(number: int) -> bytes:
    """A number in protobuf's variable-length form."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
