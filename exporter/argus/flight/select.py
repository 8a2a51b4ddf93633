"""From what a person asks for to recordings: which run, which ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from argus.exporter.sources import RankSource, merge
from argus.flight.recording import Recording, RecordingSource
from argus.segment.state import RankKey


class SelectError(ValueError):
    """Nothing fits, or too much; the message says what there is."""


def choose(known: Iterable[RankKey], run_id: str | None, ranks: Collection[int] | None) -> list[RankKey]:
    """The ranks meant, in order.

    Args:
        known: All ranks that are there.
        run_id: None: the only one.
        ranks: None: all of the run.

    Raises:
        SelectError: No rank fits, or there are several runs to choose from.
    """
    known = sorted(known)
    runs = sorted({key.run_id for key in known})
    if not runs:
        raise SelectError("no rank is here")
    if run_id is None and ranks is not None:
        runs = sorted({key.run_id for key in known if key.rank in ranks}) or runs
    if run_id is None and len(runs) > 1:
        raise SelectError(f"say which run: {_some(map(repr, runs))}")
    wanted = runs[0] if run_id is None else run_id
    of_run = [key for key in known if key.run_id == wanted]
    if not of_run:
        raise SelectError(f"no rank of run {wanted!r} is here; there are ranks of {_some(map(repr, runs))}")
    chosen = [key for key in of_run if ranks is None or key.rank in ranks]
    if not chosen:
        here = _some(str(key.rank) for key in of_run)
        raise SelectError(f"none of these ranks of run {wanted!r} is here; the ranks here: {here}")
    return chosen


def record(
    sources: Sequence[RankSource], run_id: str | None, ranks: Collection[int] | None, now_ns: int
) -> list[Recording]:
    """Read the ranks meant.

    Args:
        sources: Of equal ranks the first source's stands.
        run_id, ranks: As for ``choose``.
        now_ns: As for ``RankSource.scan``.

    Raises:
        SelectError: As ``choose``.
    """
    found = merge(source.scan(now_ns) for source in sources).ranks
    return record_keys(sources, choose((rank.state.identity.key for rank in found), run_id, ranks), now_ns)


def record_keys(sources: Sequence[RankSource], keys: Sequence[RankKey], now_ns: int) -> list[Recording]:
    """Read these ranks, in this order; of those that several sources have, the first source's."""
    found: dict[RankKey, Recording] = {}
    for source in sources:
        if isinstance(source, RecordingSource):
            for recording in source.record(keys, now_ns):
                found.setdefault(recording.state.identity.key, recording)
    return [found[key] for key in keys if key in found]


def _some(texts: Iterable[str]) -> str:
    """The first few, for a message."""
    listed = list(texts)
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return ", ".join(listed[:12]) + more
