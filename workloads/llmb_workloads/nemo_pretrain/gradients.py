# SPDX-License-Identifier: Apache-2.0
"""Puts the gradient norm into the line of each step. Only Lightning's processes import it."""

from typing import Any

from lightning.pytorch.callbacks import Callback

LOGGED = "grad_norm"  # what NeMo's strategy calls the norm that the optimizer returned
# Another name, since a value logged under NeMo's own would take its place: every step would show
# that of the first.
SHOWN = "gradient_norm"


class GradientNorm(Callback):  # type: ignore[misc,unused-ignore]
    """Shows the norm that NeMo 2.3 measures at each step, and keeps out of its step lines.

    The optimizer has computed it for clipping, as a number and over all ranks: nothing is measured
    or sent here.
    """

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        """Log the norm once more, as one of the values that NeMo's progress printer shows."""
        norm = trainer.callback_metrics.get(LOGGED)
        if norm is not None:
            pl_module.log(SHOWN, norm, prog_bar=True, batch_size=1)
