"""Quantiles of histograms, native or classic: whichever Prometheus has."""

from __future__ import annotations


def quantile(share: str, metric: str, matchers: str, *by: str) -> str:
    """PromQL of a quantile over ``$__rate_interval``, for each of the labels ``by``.

    A native histogram is one series of the metric's own name; a classic one is
    series of ``_bucket``.  Where both are stored the native one speaks.  A classic one
    without buckets (``--histogram.classic`` leaves out those of phases and kernels) gives NaN,
    which no comparison lets pass.
    """
    names = ", ".join(by)
    native = f"sum by ({names}) (rate({metric}{{{matchers}}}[$__rate_interval]))"
    classic = f"sum by ({', '.join((*by, 'le'))}) (rate({metric}_bucket{{{matchers}}}[$__rate_interval]))"
    return f"(histogram_quantile({share}, {native}) or histogram_quantile({share}, {classic})) >= 0"
