"""One line in a torch training loop: ``argus.torch.attach(model, optimizer, dataloader)``.

See ``docs/torch.md`` for what it gives and what it can't.
"""

from argus.torch.attachment import Handle, attach

__all__ = ["Handle", "attach"]
