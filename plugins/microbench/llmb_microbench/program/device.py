# SPDX-License-Identifier: Apache-2.0
"""One device alone, on every rank at once: matrix product, copies, kernel launches."""

import torch

from llmb_microbench.program import formulas
from llmb_microbench.program.ranks import TorchRanks, dtype_of
from llmb_microbench.program.settings import CaseSettings, MicrobenchError
from llmb_microbench.program.timing import Case

_PROBED = 8  # rows of a product that are computed again


def gemm(settings: CaseSettings, ranks: TorchRanks) -> Case:
    """C = A B, all N x N, with random numbers: zeros need less power and are faster than data."""
    size, dtype = settings.size("matrix_size"), dtype_of(settings.dtype)
    generator = torch.Generator(device=ranks.device).manual_seed(ranks.process.rank)
    left, right = (
        torch.randn(size, size, generator=generator, device=ranks.device).to(dtype)
        for _ in range(2)
    )
    result = torch.empty_like(left)

    def is_right() -> bool:
        torch.mm(left, right, out=result)
        again = left[:_PROBED].double().cpu() @ right.double().cpu()
        error = (result[:_PROBED].double().cpu() - again).norm() / again.norm()
        # Half of the last digit of the dtype, and some for sums in another order.
        return bool(error < 8 * torch.finfo(dtype).eps + 1e-4)

    return Case(
        operations=(lambda: torch.mm(left, right, out=result),),
        values=lambda seconds: formulas.of_gemm(size, seconds),
        check=is_right,
        about=f"{size} x {size}",
    )


def memory(settings: CaseSettings, ranks: TorchRanks) -> Case:
    """A copy from one buffer of the device's memory to another."""
    size = settings.size("buffer_size")
    source = torch.randint(256, (size,), dtype=torch.uint8, device=ranks.device)
    target = torch.zeros_like(source)
    return Case(
        operations=(lambda: target.copy_(source),),
        values=lambda seconds: formulas.of_memory(size, seconds),
        check=lambda: torch.equal(source, target),
        about=f"{size} bytes",
    )


def host_to_device(settings: CaseSettings, ranks: TorchRanks) -> Case:
    """Copy between pinned memory and device, each direction by itself. Raises MicrobenchError."""
    if not ranks.is_gpu:
        raise MicrobenchError(
            "host_to_device needs a GPU, and torch finds none on this node; check nvidia-smi there"
        )
    size = settings.size("buffer_size")
    host = torch.randint(256, (size,), dtype=torch.uint8).pin_memory()
    back = torch.zeros(size, dtype=torch.uint8).pin_memory()
    on_device = torch.zeros(size, dtype=torch.uint8, device=ranks.device)

    def values(down: float, up: float) -> dict[str, float]:
        return {
            "to_device": formulas.bandwidth(size, down),
            "to_host": formulas.bandwidth(size, up),
        }

    return Case(
        operations=(
            lambda: on_device.copy_(host, non_blocking=True),
            lambda: back.copy_(on_device, non_blocking=True),
        ),
        values=values,
        check=lambda: torch.equal(host, back),
        about=f"{size} bytes, pinned",
    )


def launch(settings: CaseSettings, ranks: TorchRanks) -> Case:
    """The smallest kernel, again and again: the time from one launch through torch to the next."""
    number = torch.zeros(1, device=ranks.device)

    def is_right() -> bool:
        number.zero_()
        for _ in range(100):
            number.add_(1.0)
        return bool(number.item() == 100)

    return Case(
        operations=(lambda: number.add_(1.0),),
        values=formulas.of_launch,
        check=is_right,
        about="an addition to one number",
    )
