"""Something to do once a module has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]
"""Gets the module; must not raise."""


class ImportWatch(MetaPathFinder):
    """Calls actions right after the first import of the modules that they wait for.

    The module itself sees nothing of it: its own loader is in place again
    before its code runs.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[Action]] = {}

    def when_imported(self, name: str, action: Action) -> None:
        """Call the action now, where the module is there already, else after its import."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            action(module)
            return
        self._waiting.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, with the actions behind it."""
        if fullname not in self._waiting:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec  # type: ignore[no-any-return]
        return None

    def imported(self, module: ModuleType) -> None:
        """Take the actions that waited for this module."""
        for action in self._waiting.pop(module.__name__, ()):
            action(module)


class _Loader(Loader):
    """A module's own loader, and what is to be done after it; all else is the loader's."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._watch.imported(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)
