# SPDX-License-Identifier: Apache-2.0
"""The program's arguments, ``--case=all_reduce --message_size=16M``, and its process among the ranks."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


class RefusedError(Exception):
    """What the user can fix; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Settings:
    """``steps``: measured iterations; ``sizes``: the parameters by name, in bytes or as a plain number."""

    case: str
    dtype: str
    steps: int
    sizes: Mapping[str, int] = field(default_factory=dict)

    def size(self, name: str) -> int:
        """The value of one parameter. Raises RefusedError where it was not given."""
        if name not in self.sizes:
            raise RefusedError(f"--{name} is missing: case {self.case} needs it")
        return self.sizes[name]


@dataclass(frozen=True)
class Process:
    """A process of the run: its rank, the number of ranks, its index on its node, the ranks there."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1


def read_size(text: str) -> int:
    """``16M`` as bytes, ``4096`` as it is. Raises RefusedError."""
    factor = UNITS.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
        raise RefusedError(f"'{text}' is not a size: write a whole number above 0, with K, M or G for binary units")
    return int(digits) * factor


def read_settings(arguments: Sequence[str]) -> Settings:
    """The settings of ``--name=value`` words. Raises RefusedError."""
    given: dict[str, str] = {}
    for word in arguments:
        name, equals, value = word.partition("=")
        if not name.startswith("--") or not equals:
            raise RefusedError(f"'{word}' is not --NAME=VALUE")
        given[name[2:]] = value
    missing = [name for name in ("case", "dtype", "steps") if not given.get(name)]
    if missing:
        raise RefusedError(f"--{missing[0]}=VALUE is missing")
    case, dtype, steps = (given.pop(name) for name in ("case", "dtype", "steps"))
    sizes = {name: read_size(value) for name, value in given.items()}
    return Settings(case=case, dtype=dtype, steps=read_size(steps), sizes=sizes)


def read_process(environ: Mapping[str, str] = os.environ) -> Process:
    """This process by torchrun's variables, which llmb sets on every cluster. Raises RefusedError for half of them."""
    if "RANK" not in environ:
        return Process()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    found = {name: environ.get(name, "") for name in (*names, "LOCAL_WORLD_SIZE")}
    found["LOCAL_WORLD_SIZE"] = found["LOCAL_WORLD_SIZE"] or "1"
    wrong = [name for name, value in found.items() if not value.isdigit()]
    if wrong:
        raise RefusedError(f"RANK is set and {wrong[0]} is '{found[wrong[0]]}': start the ranks with torchrun or llmb")
    rank, world, local_rank, local_world = map(int, found.values())
    return Process(rank=rank, world=world, local_rank=local_rank, local_world=local_world)
