# SPDX-License-Identifier: Apache-2.0
"""The program's arguments, ``--case=all_reduce --message_size=16M``, and its process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


class MicrobenchError(Exception):
    """A fault that the user can fix. The message says what is wrong and what to do."""


@dataclass(frozen=True)
class CaseSettings:
    """The case with its settings."""

    case: str
    dtype: str
    #: Measured iterations.
    steps: int
    #: The parameters by name, in bytes or plain numbers.
    sizes: Mapping[str, int] = field(default_factory=dict)

    def size(self, name: str) -> int:
        """Return the value of one parameter. Raises MicrobenchError if it was not given."""
        if name not in self.sizes:
            raise MicrobenchError(f"--{name} is missing; case {self.case} needs it")
        return self.sizes[name]


@dataclass(frozen=True)
class RankProcess:
    """A process of the run: rank, number of ranks, index on its node, ranks of the node."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1


def read_size(text: str) -> int:
    """``16M`` as bytes, ``4096`` as it is. Raises MicrobenchError."""
    factor = UNITS.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
        raise MicrobenchError(
            f"'{text}' is not a size; write a whole number above 0, with K, M or G for binary units"
        )
    return int(digits) * factor


def read_settings(arguments: Sequence[str]) -> CaseSettings:
    """The settings of ``--name=value`` words. Raises MicrobenchError."""
    arguments_by_name: dict[str, str] = {}
    for word in arguments:
        name, equals, value = word.partition("=")
        if not name.startswith("--") or not equals:
            raise MicrobenchError(f"'{word}' is not an argument; write --NAME=VALUE")
        arguments_by_name[name[2:]] = value
    missing = [name for name in ("case", "dtype", "steps") if not arguments_by_name.get(name)]
    if missing:
        raise MicrobenchError(f"--{missing[0]} is missing; write --{missing[0]}=VALUE")
    case, dtype, steps = (arguments_by_name.pop(name) for name in ("case", "dtype", "steps"))
    sizes = {name: read_size(value) for name, value in arguments_by_name.items()}
    return CaseSettings(case=case, dtype=dtype, steps=read_size(steps), sizes=sizes)


def read_process(environ: Mapping[str, str] = os.environ) -> RankProcess:
    """Return this process by torchrun's variables. Raises MicrobenchError for half of them."""
    if "RANK" not in environ:
        return RankProcess()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    variables = {name: environ.get(name, "") for name in (*names, "LOCAL_WORLD_SIZE")}
    variables["LOCAL_WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] or "1"
    invalid = [name for name, value in variables.items() if not value.isdigit()]
    if invalid:
        raise MicrobenchError(
            f"RANK is set and {invalid[0]} is '{variables[invalid[0]]}'; start the ranks with"
            " torchrun or llmb"
        )
    rank, world, local_rank, local_world = map(int, variables.values())
    return RankProcess(rank=rank, world=world, local_rank=local_rank, local_world=local_world)
