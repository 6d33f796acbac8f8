# SPDX-License-Identifier: Apache-2.0
"""How names are matched: spellings that mean the same workload, and the nearest valid word for a wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from llmb.errors import UsageError

_EXPERIMENT = re.compile(r"(?:pretrain_)?(.+_gpus\d+)((?:_(?:tp|pp|cp|vp|mbs|gbs)(?:\d+|None))+)(_.+)?")


def squash(name: str) -> str:
    """The form under which names are compared: lower case, without ``-``, ``_`` and ``.``."""
    return re.sub(r"[-_.]", "", name.strip().lower())


def squash_workload(name: str) -> str:
    """As ``squash``, and without the optional ``pretrain_`` or ``pretraining_`` before the model's name."""
    return re.sub(r"^pretrain(ing)?", "", squash(name))


def nearest(
    word: str, choices: Iterable[str], form: Callable[[str], str] = squash, *, likeness: float = 0.5
) -> str | None:
    """The valid word that ``word`` was most likely meant to be, or None when nothing is close.

    Words are compared in the ``form`` given; ``squash_workload`` keeps a prefix that all share from counting.
    ``likeness``, from 0 to 1, is how much of both must agree (difflib's ratio).
    """
    import difflib

    by_form = {form(choice): choice for choice in choices}
    close = difflib.get_close_matches(form(word), by_form, n=1, cutoff=likeness)
    return by_form[close[0]] if close else None


def suggest(word: str, choices: Collection[str]) -> str:
    """A hint for a word that is not one of ``choices``: the nearest one, else all of them."""
    close = nearest(word, choices)
    if close is not None:
        return f"did you mean '{close}'?"
    return "one of " + ", ".join(choices) if choices else "there is none to choose from"


def shorter(experiment: str) -> Iterator[str]:
    """The name of an experiment, again and again with less of it: what tells least is left out first.

    First ``pretrain_``; then the ways of parallelism that are none (``tp1``, ``vpNone``); then, with ``..`` in their
    place, the other numbers one by one. Workload, size, dtype, GPU count and what stands behind the numbers stay. A
    text that is no such name comes as it is.
    """
    yield experiment
    found = _EXPERIMENT.fullmatch(experiment)
    if found is None:
        return
    begin, numbers, end = found[1], found[2].split("_")[1:], found[3] or ""
    yield f"{begin}{found[2]}{end}"
    numbers = [word for word in numbers if not re.fullmatch(r"[tpcv]p(1|None)", word)]
    yield "_".join([begin, *numbers]) + end
    for left_out in range(1, len(numbers) + 1):
        yield f"{begin}..{'_'.join(numbers[left_out:])}{end}"


def find_workload(name: str, keys: Collection[str]) -> str:
    """The key among ``keys`` that ``name`` spells. Raises UsageError when none or several do."""
    if name in keys:
        return name
    matches = [key for key in keys if squash_workload(key) == squash_workload(name)]
    return _only(matches, name, keys)


def find_size(name: str, sizes: Collection[str]) -> str | None:
    """The size among ``sizes`` that ``name`` spells, or None."""
    return next((size for size in sizes if squash(size) == squash(name)), None)


def find_workload_and_size(
    name: str,
    sizes: Mapping[str, Collection[str]],
    *,
    on: str | None = None,
    here: Mapping[str, Collection[str]] | None = None,
) -> tuple[str, str | None]:
    """Split ``name``, a workload's key alone or with ``_<size>`` behind it, into key and size (None without).

    ``sizes`` maps each workload's key to its sizes. Raises UsageError when nothing or more than one thing fits; where
    the workload fits but the size does not, the error says so (for the GPU type ``on``) and names the nearest size of
    those that run there (``here``, all where None).
    """
    if name in sizes:
        return name, None
    squashed = squash_workload(name)
    fits: set[tuple[str, str | None]] = {(key, None) for key in sizes if squash_workload(key) == squashed}
    fits |= {(key, size) for key in sizes for size in sizes[key] if squash_workload(key) + squash(size) == squashed}
    if len(fits) == 1:
        return next(iter(fits))
    if fits:
        raise _ambiguous(name, [key if size is None else f"{key} with size {size}" for key, size in fits])
    starts = [key for key in sizes if squashed.startswith(squash_workload(key))]
    if starts:
        key = max(starts, key=len)
        raise no_size(key, _behind(name.strip(), key), (sizes if here is None else here)[key], on=on)
    full = [f"{key}_{size}" for key in sizes for size in sizes[key]]
    close = nearest(name, [*sizes, *full], squash_workload)
    raise UsageError(f"no workload is called '{name}'", hint=_workload_hint(close))


def no_size(key: str, size: str, sizes: Collection[str], *, on: str | None = None) -> UsageError:
    """The error that workload ``key`` has no ``size`` (on the GPU type ``on``), with the nearest of ``sizes``."""
    where = f" on {on}" if on else ""
    cure = suggest(size, sizes)
    if on and nearest(size, sizes) is None:
        cure = f"on {on} it runs as {', '.join(sizes)}" if sizes else f"none of its sizes runs on {on}"
    return UsageError(f"{key} has no size '{size}'{where}", hint=f"{cure}  llmb-run list -w {key}")


def _behind(name: str, key: str) -> str:
    """What follows in ``name`` after the spelling of ``key`` that it begins with."""
    ends = (end for end in range(len(name)) if squash_workload(name[:end]) == squash_workload(key))
    return name[next(ends, 0) :].lstrip("-_.")


def _only(matches: list[str], name: str, keys: Collection[str]) -> str:
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(name, matches)
    raise UsageError(f"no workload is called '{name}'", hint=_workload_hint(nearest(name, keys, squash_workload)))


def _ambiguous(name: str, matches: Iterable[str]) -> UsageError:
    return UsageError(
        f"'{name}' fits several workloads: {', '.join(sorted(matches))}", hint="write one of them in full"
    )


def _workload_hint(close: str | None) -> str:
    return f"did you mean '{close}'?" if close else "llmb-run list shows the workloads"
