# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_microbench.program --case=all_reduce --dtype=fp32 --steps=20 ...: one case."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from llmb_microbench.program.settings import (
    CaseSettings,
    MicrobenchError,
    RankProcess,
    read_process,
    read_settings,
)


def run(settings: CaseSettings, process: RankProcess) -> None:
    """Run the case on this rank. Rank 0 prints a line for each iteration."""
    # Imported here: torch takes seconds, a refusal should not.
    from llmb_microbench.program.ranks import TorchRanks
    from llmb_microbench.program.timing import iterations, line, warm_up

    cases = _cases()
    if settings.case not in cases:
        raise MicrobenchError(f"case {settings.case} is unknown; use {', '.join(cases)}")
    ranks = TorchRanks(process)
    case = cases[settings.case](settings, ranks)
    counts = warm_up(ranks, case)
    ranks.require(case.check(), settings.case)
    if process.rank == 0:
        headline = (
            f"microbench: {settings.case} in {settings.dtype}, {case.about}, ranks: {process.world}"
        )
        repeated = f"operations of an iteration: {', '.join(map(str, counts))}"
        print(f"{headline}, {ranks.description}, {repeated}", flush=True)
    for step, values in enumerate(iterations(ranks, case, counts, settings.steps)):
        if process.rank == 0:
            print(line(step, settings.steps, values), flush=True)


def _cases() -> dict[str, Callable[[CaseSettings, Any], Any]]:
    from llmb_microbench.program.collectives import collective
    from llmb_microbench.program.device import gemm, host_to_device, launch, memory
    from llmb_microbench.program.formulas import BUS_FACTORS
    from llmb_microbench.program.storage import storage

    alone = {
        "gemm": gemm,
        "memory": memory,
        "host_to_device": host_to_device,
        "launch": launch,
        "storage": storage,
    }
    return {**dict.fromkeys(BUS_FACTORS, collective), **alone}


def main(arguments: list[str]) -> int:
    """Run one case. The exit code is 2 if it is refused, 1 if it fails or its result is wrong."""
    try:
        run(read_settings(arguments), read_process())
    except MicrobenchError as error:
        print(f"llmb error: {error}", file=sys.stderr)
        _leave(2)
    except BaseException:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def _leave(code: int) -> NoReturn:
    """End the process at once: the destructor of torch's gloo group sometimes never returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
