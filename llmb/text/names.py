# SPDX-License-Identifier: Apache-2.0
"""Matches names: the spellings of a workload and its sizes, the nearest valid word, and shortened names of runs."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from llmb.errors import UsageError

_EXPERIMENT = re.compile(r"(?:pretrain_)?(.+_gpus\d+)((?:_(?:tp|pp|cp|vp|mbs|gbs)(?:\d+|None))+)(_.+)?")
_UNTRAINED = re.compile(r"(.+?_gpus\d+)((?:_[^_]+)+)()")  # where no model is trained

_LEAST = 24  # characters to which a name that is not an experiment's can be shortened


def squash(name: str) -> str:
    """The form under which names are compared: lower case, without ``-``, ``_`` and ``.``."""
    return re.sub(r"[-_.]", "", name.strip().lower())


def squash_workload(name: str) -> str:
    """Like ``squash``, and without the optional prefix ``pretrain_`` or ``pretraining_``."""
    return re.sub(r"^pretrain(ing)?", "", squash(name))


def is_pair(word: str) -> bool:
    """Whether ``word`` is ``NAME=VALUE``, with a name that may have dots."""
    return re.fullmatch(r"[A-Za-z_][\w.]*=.*", word, re.DOTALL) is not None


def nearest(
    word: str, choices: Iterable[str], form: Callable[[str], str] = squash, *, likeness: float = 0.5
) -> str | None:
    """The one of ``choices`` that is nearest to ``word``, or None if none is close.

    Words are compared after ``form``; ``squash_workload`` removes the prefix that all workloads share. ``likeness``,
    from 0 to 1, is the least similarity (difflib's ratio).
    """
    import difflib

    by_form = {form(choice): choice for choice in choices}
    close = difflib.get_close_matches(form(word), by_form, n=1, cutoff=likeness)
    return by_form[close[0]] if close else None


def suggest(word: str, choices: Collection[str], *, likeness: float = 0.5) -> str:
    """The hint for a word that is not one of ``choices``: the nearest one, as in ``nearest``, or else all of them."""
    close = nearest(word, choices, likeness=likeness)
    if close is not None:
        return f"did you mean '{close}'?"
    return "one of " + ", ".join(choices) if choices else "none is available"


def listed(names: Sequence[str], most: int = 8, separator: str = ", ") -> str:
    """The first ``most`` names, and the number of the others: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def shorter(experiment: str) -> Iterator[str]:
    """The name of an experiment in shorter and shorter forms; the least informative parts are omitted first.

    First ``pretrain_``; then parallelism without effect (``tp1``, ``vpNone``); then the other numbers one by one,
    replaced by ``..``. Workload, size, dtype, GPU count and the text after the numbers are kept. Other texts are not
    changed. Where no model is trained, the words of the parameters are such numbers.
    """
    yield experiment
    found = _parts_of(experiment)
    if found is None:
        return
    begin, numbers, end = found
    whole = "_".join([begin, *numbers]) + end
    if whole != experiment:
        yield whole
    numbers = [word for word in numbers if not re.fullmatch(r"[tpcv]p(1|None)", word)]
    yield "_".join([begin, *numbers]) + end
    for omitted in range(1, len(numbers) + 1):
        yield f"{begin}..{'_'.join(numbers[omitted:])}{end}"


def apart(names: Sequence[str], width: int) -> list[str] | None:
    """The names of experiments in at most ``width`` characters, still different; None if that is not possible.

    A name is shortened like in ``shorter``, but keeps the numbers in which it differs from others of the same workload,
    size, dtype and GPU count. Other texts lose their middle.
    """
    distinct = dict.fromkeys(names)
    parts = {name: _numbers_of(name) for name in distinct}
    shared: dict[str, set[str]] = {}
    for head, numbers in parts.values():
        shared[head] = shared[head] & numbers if head in shared else numbers
    shown = {}
    for name in distinct:
        head, numbers = parts[name]
        fits = (less for less in _keeping(name, numbers - shared[head]) if len(less) <= width)
        if (own := next(fits, None)) is None:
            if numbers or width < _LEAST:
                return None
            own = f"{name[: width // 2 - 2]}...{name[width // 2 + 1 - width :]}"
        shown[name] = own
    return [shown[name] for name in names] if len(set(shown.values())) == len(distinct) else None


def _numbers_of(name: str) -> tuple[str, set[str]]:
    """The text before and after the numbers of an experiment's name, and the numbers."""
    found = _parts_of(name)
    return (f"{found[0]}..{found[2]}", set(found[1])) if found else (name, set())


def _parts_of(name: str) -> tuple[str, list[str], str] | None:
    """The text before the numbers of an experiment's name, the numbers, and the text after; None for other texts.

    Where no model is trained, all words after the GPU count count as numbers: they are parameters.
    """
    found = _EXPERIMENT.fullmatch(name) or _UNTRAINED.fullmatch(name)
    return None if found is None else (found[1], found[2].split("_")[1:], found[3] or "")


def _keeping(name: str, kept: set[str]) -> Iterator[str]:
    """Like ``shorter``, but only forms with all numbers ``kept``; the last form has only those."""
    for less in shorter(name):
        if kept <= set(re.split(r"_|\.\.", less)):
            yield less
    if kept:
        found = _parts_of(name)
        assert found is not None
        yield f"{found[0]}..{'_'.join(word for word in found[1] if word in kept)}{found[2]}"


def find_workload(name: str, keys: Collection[str]) -> str:
    """The key among ``keys`` that ``name`` is a spelling of. Raises UsageError if none or several match."""
    if name in keys:
        return name
    matches = [key for key in keys if squash_workload(key) == squash_workload(name)]
    if not matches:
        raise _unknown(name, keys, keys)
    if len(matches) > 1:
        raise _ambiguous(name, matches)
    return matches[0]


def as_keys(names: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Each of ``names`` replaced by the key that it is a spelling of; unknown names are kept."""
    by_form = {squash_workload(key): key for key in keys}
    return [by_form.get(squash_workload(name), name) for name in names]


def find_size(name: str, sizes: Collection[str]) -> str | None:
    """The size among ``sizes`` that ``name`` is a spelling of, or None."""
    return next((size for size in sizes if squash(size) == squash(name)), None)


def find_workload_and_size(
    name: str,
    sizes: Mapping[str, Collection[str]],
    *,
    on: str | None = None,
    here: Callable[[str], Collection[str]] | None = None,
) -> tuple[str, str | None]:
    """Split ``name``, a workload's key with or without ``_<size>``, into key and size (None without).

    ``sizes`` maps each workload's key to its sizes. Raises UsageError if nothing or more than one thing matches. If
    only the size does not match, the error names the nearest of the sizes that are ``here``, those of the workload that
    run on the GPU type ``on`` (default: all sizes).
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
        stripped = name.strip()
        ends = (end for end in range(len(stripped)) if squash_workload(stripped[:end]) == squash_workload(key))
        size = stripped[next(ends, 0) :].lstrip("-_.")  # what follows the spelling of the key
        raise size_unknown(key, size, sizes[key] if here is None else here(key), on=on)
    full = [f"{key}_{size}" for key in sizes for size in sizes[key]]
    raise _unknown(name, sizes, [*sizes, *full])


def size_unknown(key: str, size: str, sizes: Collection[str], *, on: str | None = None) -> UsageError:
    """The error for a ``size`` that the workload ``key`` does not have (on the GPU type ``on``)."""
    where = f" on {on}" if on else ""
    fix = suggest(size, sizes)
    if on and nearest(size, sizes) is None:
        fix = f"on {on} it runs as {', '.join(sizes)}" if sizes else f"none of its sizes runs on {on}"
    message = f"{key} has no size '{size}'{where}"
    return UsageError(message, hint=with_list_command(fix, key), code="size-unknown", key=key, value=size)


def with_list_command(fix: str, key: str) -> str:
    """The hint ``fix``, followed by the command that lists the workload ``key``."""
    command = f"llmb-run list -w {key}"
    return f"{fix}  {command}" if fix.endswith("?") else f"{fix}; see {command}"


def _unknown(name: str, keys: Collection[str], names: Collection[str]) -> UsageError:
    """The hint is the workloads that begin with ``name`` if there are several, or else the nearest of ``names``."""
    start = squash_workload(name)
    begun = [key for key in keys if start and squash_workload(key).startswith(start)]
    close = nearest(name, names, squash_workload)
    hint = f"did you mean '{close}'?" if close else "llmb-run list shows the workloads"
    if len(begun) > 1:
        hint = f"did you mean {' or '.join(map(repr, begun))}?"
    return UsageError(f"no workload is called '{name}'", hint=hint, code="workload-unknown", value=name)


def _ambiguous(name: str, matches: Iterable[str]) -> UsageError:
    message = f"'{name}' matches several workloads: {', '.join(sorted(matches))}"
    return UsageError(message, hint="write the full name of one of them", code="workload-ambiguous", value=name)
