"""One line in a torch training loop: ``argus.torch.attach(model, optimizer, dataloader)``.

See ``docs/torch.md`` for what it gives and what it can't.
"""

from typing import TYPE_CHECKING

from argus import _absent

if TYPE_CHECKING or not _absent.reason:
    from argus.torch.attachment import Handle, attach
else:
    from argus.torch._absent import Handle, attach

__all__ = ["Handle", "attach"]
