# SPDX-License-Identifier: Apache-2.0
"""What the user says that logs without a record are of, where neither their lines nor their names say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from llmb.errors import UsageError

if TYPE_CHECKING:
    from llmb.cli.context import Context
    from llmb.results.foreign import Description

F = TypeVar("F", bound=Callable[..., Any])
_COUNT = click.IntRange(min=1)
_OPTIONS = (
    click.option("--gpu-type", metavar="TYPE", help="The GPUs of logs without a record, to compare them and for MFU."),
    click.option("-w", "--workload", metavar="W_SIZE", help="What such logs are of, where their names do not say it."),
    click.option("--dtype", metavar="D", help="Their dtype, likewise."),
    click.option("--scale", type=_COUNT, metavar="N", help="Their number of GPUs, likewise."),
    click.option("--gbs", type=_COUNT, metavar="N", help="Their global batch, likewise."),
)


def description_options(command: F) -> F:
    """The options that ``description`` takes, by their names."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def description(context: Context, said: Mapping[str, Any]) -> Description:
    """What these options say, None where one is not given. Raises UsageError with the nearest word."""
    from llmb.planning.select import split_name
    from llmb.results.foreign import Description
    from llmb.text.names import suggest
    from llmb.workload.gpus import known_types

    gpu_type, dtype, key, size = said["gpu_type"], said["dtype"], None, None
    if gpu_type is not None and gpu_type not in known_types():
        raise UsageError(f"--gpu-type {gpu_type} is not known", hint=suggest(gpu_type, list(known_types())))
    if said["workload"] is not None:
        key, size = split_name(said["workload"], context.workloads)
    if key is not None and size is None:
        sizes = ", ".join(f"{key}_{name}" for name in context.workloads[key].sizes)
        raise UsageError(f"--workload {said['workload']} names no size", hint=f"one of {sizes}")
    dtypes = sorted({own for kind in known_types().values() for own in kind.peak_tflops} | {"fp32"})
    if dtype is not None and dtype not in dtypes:
        raise UsageError(f"--dtype {dtype} is not known", hint=suggest(dtype, dtypes))
    return Description(workload=key, size=size, dtype=dtype, gpu_type=gpu_type, gpus=said["scale"], gbs=said["gbs"])
