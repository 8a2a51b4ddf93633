"""Ranks of this node through their life: found, alive, ended cleanly or dead, gone.

- A clean end removes a rank at once and counts it for its run, also when its
  file was unlinked between two scrapes: the descriptor that was kept shows the
  last state.
- A rank whose process died is down for ``retention`` and then forgotten, its
  file removed where that is permitted.  It is forgotten earlier when the rank
  appears again on this node.
- Of several segments of one rank the newest living incarnation stands.  A
  segment of another user never displaces the one that holds the place.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from argus.exporter.ended import EndedRanks
from argus.exporter.sources import Rank, Scan
from argus.flight.recording import Recording, record_file
from argus.segment import files, snapshot
from argus.segment.reader import read
from argus.segment.sections import STATE_BYTES, IncompatibleSegment, SegmentError
from argus.segment.state import RankKey, RankState, RunState

_LOG = logging.getLogger(__name__)

RETENTION_S = 600.0
_BYTES_PER_USER = 128 << 20
"""Of what scrapes read: flight recorders are not."""
_IN_PAST_BOOT_NS = 1 << 62
_MOST_MESSAGES = 64
"""Of one user, in the log."""


@dataclass
class _Tracked:
    """One segment whose descriptor is held."""

    entry: files.Entry
    fd: int
    size: int
    state: RankState | None = None
    up: bool = False
    died_ns: int | None = None
    trouble: str | None = None  # the segment state to count it under


class FileSource:
    """The segments below a base directory.

    Args:
        base: Holds the users' directories ``argus-<uid>``.
        retention_s: How long a dead rank stays announced as down.
        per_user, total: Most segments that are held open.
        removes: Whether files of dead ranks are removed in the end.
        own: Returns device and inode of this process's own segments, which must not be opened.
    """

    def __init__(
        self,
        base: Path,
        *,
        retention_s: float = RETENTION_S,
        per_user: int = 128,
        total: int = 1024,
        removes: bool = True,
        own: Callable[[], Container[tuple[int, int]]] = tuple,
    ) -> None:
        self.base = base
        self._retention_ns = int(retention_s * 1e9)
        self._per_user = per_user
        self._total = total
        self._removes = removes
        self._own = own
        self._lock = threading.Lock()
        self._closed = False
        self._tracked: dict[files.Entry, _Tracked] = {}
        self._forgotten: set[files.Entry] = set()
        self._holder: dict[RankKey, int] = {}
        self._ended = EndedRanks(self._retention_ns)
        self._ends_shown = 0
        self._said: set[str] = set()
        self._messages: Counter[int] = Counter()
        self._outside = {"refused": 0, "unreadable": 0}

    def discover(self) -> None:
        """Open segments that are new, so that their last state can be read after they are unlinked."""
        with self._lock:
            self._discover()

    def scan(self, now_ns: int) -> Scan:
        """Read every segment; see ``RankSource``."""
        with self._lock:
            self._look(now_ns)
            self._ends_shown = self._ended.added
            return self._result(now_ns)

    def peek(self, now_ns: int) -> Scan:
        """As ``scan``, for somebody who shows it to nobody: clean ends stay unseen."""
        with self._lock:
            self._look(now_ns)
            return self._result(now_ns)

    def has_unseen_ends(self, now_ns: int) -> bool:
        """Whether ranks ended cleanly since the last scan."""
        with self._lock:
            self._look(now_ns)
            return self._ended.added > self._ends_shown

    def record(self, wanted: Iterable[RankKey], now_ns: int) -> list[Recording]:
        """Read the flight recorders of these ranks; see ``RecordingSource``."""
        with self._lock:
            self._look(now_ns)
            best = self._best()
            recordings = []
            for key in wanted:
                if key in best:
                    tracked = best[key][0]
                    try:
                        recordings.append(record_file(tracked.fd, tracked.up, now_ns))
                    except (SegmentError, OSError) as error:
                        self._say(f"{tracked.entry.path}: no flight recorder: {error}", tracked.entry.uid)
            return recordings

    def processes(self, wanted: Iterable[RankKey]) -> dict[RankKey, int]:
        """Process ids of these ranks, those that are alive; 0: not to be seen from this PID namespace."""
        with self._lock:
            best = self._best()
            holders = {key: files.lock_holder(best[key][0].fd) for key in wanted if key in best}
            return {key: holder for key, holder in holders.items() if holder is not None}

    def paths(self, wanted: Iterable[RankKey]) -> dict[RankKey, Path]:
        """Files of these ranks' segments."""
        with self._lock:
            best = self._best()
            return {key: best[key][0].entry.path for key in wanted if key in best}

    def close(self) -> None:
        """Let go of every descriptor; a scrape that is still under way finds nothing."""
        with self._lock:
            self._closed = True
            for tracked in self._tracked.values():
                os.close(tracked.fd)
            self._tracked.clear()

    def _look(self, now_ns: int) -> None:
        self._discover()
        for tracked in list(self._tracked.values()):
            if tracked.entry in self._tracked:
                self._update(tracked, now_ns)

    def _discover(self) -> None:
        self._outside = {"refused": 0, "unreadable": 0}
        if self._closed:
            return
        seen = set()
        tries: Counter[int] = Counter()
        entries = list(self._entries())
        own = self._own()  # after listing: a segment just created is listed only if it is known
        for entry in entries:
            seen.add(entry)
            if entry in self._tracked or entry in self._forgotten or entry.inode in own:
                continue
            if tries[entry.uid] > self._per_user:
                self._outside["refused"] += 1
                continue
            try:
                self._open(entry)
            except FileNotFoundError:
                continue
            except files.RefusedError as error:
                # Those last written to come first: what is alive is among the first ones.
                tries[entry.uid] += isinstance(error, files.CrowdedError)
                self._outside["refused"] += 1
                self._say(str(error), entry.uid)
            except files.UnreadableError as error:
                self._outside["unreadable"] += 1
                self._say(str(error), entry.uid)
        self._forgotten &= seen

    def _entries(self) -> Iterator[files.Entry]:
        try:
            directories, foreign = files.user_directories(self.base)
            self._outside["refused"] += len(foreign)
            for path in foreign[:_MOST_MESSAGES]:
                self._say(f"{path} does not belong to the user in its name; remove it")
            if not directories and not self.base.exists():
                self._say(
                    f"{self.base} does not exist; no rank can write there (ARGUS_DIR, --segments.directory)"
                )
        except OSError as error:
            self._outside["unreadable"] += 1
            self._say(f"{self.base} can't be read: {error.strerror}")
            return
        for directory, uid in directories:
            try:
                yield from files.entries(directory, uid)
            except FileNotFoundError:
                continue
            except files.RefusedError as error:
                self._outside["refused"] += 1
                self._say(str(error), uid)
            except (files.UnreadableError, OSError) as error:
                self._outside["unreadable"] += 1
                self._say(str(error), uid)

    def _open(self, entry: files.Entry) -> None:
        crowded = len(self._of(entry.uid)) >= self._per_user or len(self._tracked) >= self._total
        if crowded and not self._make_room(entry):
            raise files.CrowdedError(
                f"more than {self._per_user} segments of user {entry.uid} or {self._total} in all, "
                "the others are not read; remove stale ones or raise --segments.max-per-user, --segments.max"
            )
        fd = files.open_segment(entry)
        size = min(os.fstat(fd).st_size, STATE_BYTES)
        if sum(tracked.size for tracked in self._of(entry.uid)) + size > _BYTES_PER_USER:
            os.close(fd)
            raise files.CrowdedError(
                f"the segments of user {entry.uid} exceed {_BYTES_PER_USER >> 20} MiB, the others "
                "are not read; remove stale ones"
            )
        self._tracked[entry] = _Tracked(entry, fd, size)

    def _of(self, uid: int) -> list[_Tracked]:
        return [tracked for tracked in self._tracked.values() if tracked.entry.uid == uid]

    def _make_room(self, entry: files.Entry) -> bool:
        """Forget the user's longest dead segment for one that is alive; False: there is none to forget."""
        dead = [tracked for tracked in self._of(entry.uid) if self._is_dead(tracked)]
        if not dead:
            return False
        fd = files.open_segment(entry)
        alive = files.is_locked(fd)
        os.close(fd)
        if alive:
            just_now = max(tracked.died_ns or 0 for tracked in dead) + 1
            self._forget(min(dead, key=lambda tracked: tracked.died_ns or just_now))
        return alive

    @staticmethod
    def _is_dead(tracked: _Tracked) -> bool:
        """Also when no scrape has seen it yet; a clean end is not told yet, and stays."""
        if tracked.died_ns is not None:
            return True
        return not files.is_locked(tracked.fd) and not files.is_unlinked(tracked.fd)

    def _update(self, tracked: _Tracked, now_ns: int) -> None:
        if tracked.died_ns is None:
            # The lock first: what is read after it is gone is the rank's last state.
            locked = files.is_locked(tracked.fd)
            self._read(tracked, now_ns)
            state = tracked.state
            if state is not None and state.run_state is RunState.ENDED:
                self._ended.add(state.identity.key, now_ns)
                self._supersede(tracked, state)
                self._forget(tracked)
                return
            was_up = tracked.up
            tracked.up = locked and (state is None or state.run_state is RunState.RUNNING)
            if tracked.up:
                return
            tracked.died_ns = now_ns if was_up or state is None else self._last_sign(state, now_ns)
        if now_ns - tracked.died_ns >= self._retention_ns:
            if self._removes:
                if tracked.state is not None:
                    files.remove(tracked.entry)
                self._forget(tracked)
        elif tracked.state is None and files.is_unlinked(tracked.fd):
            self._forget(tracked)

    @staticmethod
    def _last_sign(state: RankState, now_ns: int) -> int:
        """When a rank that was never seen alive died, so that a long-dead one is not announced."""
        sign = state.last_sign_ns
        return sign if sign <= now_ns else now_ns - _IN_PAST_BOOT_NS

    def _supersede(self, newer: _Tracked, state: RankState) -> None:
        """Forget dead segments of the same user and rank that are older: the rank has come back."""
        for other in list(self._tracked.values()):
            if (
                other.state is not None
                and not other.up
                and other is not newer
                and other.entry.uid == newer.entry.uid
                and other.state.identity.key == state.identity.key
                and other.state.incarnation_ns <= state.incarnation_ns
            ):
                if self._removes:
                    files.remove(other.entry)
                self._forget(other)

    def _read(self, tracked: _Tracked, now_ns: int) -> None:
        tracked.trouble = None
        try:
            tracked.state = read(snapshot.take(tracked.fd), now_ns)
        except IncompatibleSegment as error:
            tracked.state, tracked.trouble = None, "incompatible"
            self._say(f"{tracked.entry.path}: {error}", tracked.entry.uid)
        except (SegmentError, OSError) as error:
            tracked.state, tracked.trouble = None, "unreadable"
            self._say(f"{tracked.entry.path}: {error}", tracked.entry.uid)
        except Exception as error:  # whatever its bytes did to the reader, the other ranks are served
            tracked.state, tracked.trouble = None, "unreadable"
            self._say(
                f"{tracked.entry.path}: {type(error).__name__}: {error}; please report it, with the file"
            )

    def _forget(self, tracked: _Tracked) -> None:
        del self._tracked[tracked.entry]
        if not files.is_unlinked(tracked.fd):
            self._forgotten.add(tracked.entry)
        with suppress(OSError):
            os.close(tracked.fd)

    def _best(self) -> dict[RankKey, tuple[_Tracked, RankState]]:
        """Of each rank the segment that stands for it."""
        best: dict[RankKey, tuple[_Tracked, RankState]] = {}
        for tracked in self._tracked.values():
            if tracked.state is not None:
                key = tracked.state.identity.key
                if key not in best or self._standing(tracked, tracked.state) > self._standing(*best[key]):
                    best[key] = tracked, tracked.state
        return best

    def _result(self, now_ns: int) -> Scan:
        best = self._best()
        for tracked, state in best.values():
            if tracked.up:
                self._supersede(tracked, state)
        self._holder = {key: tracked.entry.uid for key, (tracked, _) in best.items()}
        self._ended.forget(best)

        scan = Scan([Rank(state, tracked.up) for _, (tracked, state) in sorted(best.items())])
        scan.ended = self._ended.counts({key.run_id for key in best}, now_ns)
        for name, count in self._outside.items():
            scan.segments[name] += count
        for tracked in self._tracked.values():
            known = "alive" if tracked.up else "down"
            scan.segments[known if tracked.state is not None else tracked.trouble or "unreadable"] += 1
        return scan

    def _standing(self, tracked: _Tracked, state: RankState) -> tuple[bool, bool, int]:
        held = self._holder.get(state.identity.key) == tracked.entry.uid
        return tracked.up, held, state.incarnation_ns

    def _say(self, message: str, uid: int = -1) -> None:
        """Log once, printable characters only, a bounded number for each user: who chooses the file names."""
        message = "".join(c if c.isprintable() else "\ufffd" for c in message)
        if message in self._said or len(self._said) >= 4096 or self._messages[uid] >= _MOST_MESSAGES:
            return
        self._said.add(message)
        self._messages[uid] += 1
        _LOG.warning("%s", message)
        if self._messages[uid] == _MOST_MESSAGES and uid >= 0:
            _LOG.warning("no more is said of the segments of user %d; see argus_exporter_segments", uid)
