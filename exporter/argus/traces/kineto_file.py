"""Read a Kineto file (PyTorch profiler, Chrome trace format) event by event.

A file is never in memory as a whole, and one that was cut short gives the
events that are complete.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

from argus.traces.errors import Notes, TraceError
from argus.traces.files import DamagedError, open_bytes

_BLOCK = 1 << 20
_LONGEST_EVENT = 16 << 20
"""An event that does not end within so many characters is damage, not an event."""

_SPACE = " \t\r\n,"


class KinetoFile:
    """One file: ``events()`` first, then ``distributed`` (the ``distributedInfo`` object, maybe empty)."""

    def __init__(self, path: str, notes: Notes) -> None:
        self.path = path
        self.distributed: dict[str, Any] = {}
        self._notes = notes
        self._decoder = json.JSONDecoder()

    def events(self) -> Iterator[dict[str, Any]]:
        """Events in the file's order.

        Raises:
            TraceError: The file holds no list of events.
        """
        with open_bytes(self.path) as data:
            yield from self._events(_Text(data, self.path, self._notes))

    def _events(self, text: _Text) -> Iterator[dict[str, Any]]:
        if not self._seek_events(text):
            raise TraceError(
                f"{self.path}: no traceEvents found; export it again with torch.profiler's "
                "export_chrome_trace or tensorboard_trace_handler, or leave it out"
            )
        buffer, position = text.buffer, text.position
        while True:
            while position < len(buffer) and buffer[position] in _SPACE:
                position += 1
            if position < len(buffer) and buffer[position] == "]":
                self._info(buffer[position:] + text.rest())
                return
            try:
                event, position = self._decoder.raw_decode(buffer, position)
            except RecursionError:
                self._notes.add(self.path, "damaged in an event (nested too deeply), read up to there")
                return
            except ValueError:
                more = text.read()
                if not more or len(buffer) - position > _LONGEST_EVENT:
                    if buffer[position:].strip():
                        self._notes.add(self.path, "cut short or damaged in an event, read up to there")
                    elif not text.damaged:
                        self._notes.add(self.path, "the list of events has no end, read up to there")
                    return
                buffer, position = buffer[position:] + more, 0
                continue
            if isinstance(event, dict):
                yield event
            else:
                self._notes.add(self.path, "events that are not objects", repr(event)[:40])

    def _seek_events(self, text: _Text) -> bool:
        """Go to the first event, taking in what stands before."""
        text.buffer = text.read()
        if text.buffer.lstrip("\ufeff \t\r\n")[:1] == "[":
            text.position = text.buffer.index("[") + 1
            return True
        while True:
            found = re.search(r'"traceEvents"\s*:\s*\[', text.buffer)
            if found:
                self._info(text.buffer[: found.start()])
                text.position = found.end()
                return True
            more = text.read()
            if not more or len(text.buffer) > _LONGEST_EVENT:
                return False
            text.buffer += more

    def _info(self, text: str) -> None:
        found = re.search(r'"distributedInfo"\s*:\s*', text)
        if not found:
            return
        try:
            info, _ = self._decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            return
        if isinstance(info, dict):
            self.distributed = info


class _Text:
    """A file's text, a block at a time; damage ends it, with a note."""

    def __init__(self, data: BufferedReader, path: str, notes: Notes) -> None:
        self._data = data
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._path = path
        self._notes = notes
        self.damaged = False
        self.buffer = ""
        self.position = 0

    def read(self) -> str:
        """The next block; empty at the end."""
        if self.damaged:
            return ""
        try:
            block = self._data.read1(_BLOCK)
        except DamagedError as error:
            self.damaged = True
            self._notes.add(
                self._path, f"the compressed file is cut short or damaged ({error}), read up to there"
            )
            return ""
        return self._decode(block, final=not block)

    def rest(self) -> str:
        """What follows the events, as far as it is of interest."""
        text = ""
        while len(text) < _LONGEST_EVENT and (more := self.read()):
            text += more
        return text
