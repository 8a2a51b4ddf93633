"""Checkpoints and rendezvous: functions that block the training loop until they return."""

from __future__ import annotations

from types import ModuleType

from argus.stalls.patches import Patches
from argus.stalls.stall import Stall, around


class Blocking:
    """Functions of one library whose calls are declared pauses."""

    def __init__(self, modules: tuple[str, ...], names: tuple[str, ...]) -> None:
        """
        Args:
            modules: Where the library holds them.
            names: Of the functions; those that a release lacks are passed over.
        """
        self._modules = modules
        self._names = names

    def __call__(self, module: ModuleType, stall: Stall, patches: Patches) -> None:
        """Exchange them.

        Raises:
            LookupError: There is none of them.
        """
        found = [
            patches.function(self._modules, name, lambda function: around(function, stall))
            for name in self._names
        ]
        if not any(found):
            raise LookupError(f"{module.__name__} has none of {', '.join(self._names)}")


TORCH_SAVE = Blocking(("torch", "torch.serialization"), ("save",))

_CHECKPOINT = "torch.distributed.checkpoint"
DISTRIBUTED_CHECKPOINT = Blocking(
    (_CHECKPOINT, f"{_CHECKPOINT}.state_dict_saver", f"{_CHECKPOINT}.state_dict_loader"),
    ("save", "async_save", "load", "save_state_dict", "load_state_dict"),
)

SAFETENSORS = Blocking(("safetensors.torch",), ("save_model", "save_file", "serialize_file"))
"""The last one writes, and is called even by a ``save_file`` that somebody took from here earlier."""

PROCESS_GROUPS = Blocking(
    ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"),
    ("init_process_group", "new_group", "split_group"),
)
