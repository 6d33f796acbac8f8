# SPDX-License-Identifier: Apache-2.0
"""Matches names: spellings of workloads and sizes, the nearest word, short names of runs."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from llmb.errors import UsageError

# Compiled on first use: every command imports this module, and few shorten names.
_EXPERIMENT = r"(?:pretrain_)?(.+_gpus\d+)((?:_(?:tp|pp|cp|vp|mbs|gbs)(?:\d+|None))+)(_.+)?"
_UNTRAINED = r"(.+?_gpus\d+)((?:_[^_]+)+)()"  # where no model is trained

_LEAST = 24  # characters to which a name that is not an experiment's can be shortened


@lru_cache(maxsize=4096)  # each line of a job list is compared with every workload
def squash(name: str) -> str:
    """The form under which names are compared: lower case, without ``-``, ``_`` and ``.``."""
    return re.sub(r"[-_.]", "", name.strip().lower())


@lru_cache(maxsize=4096)
def squash_workload(name: str) -> str:
    """Like ``squash``, and without the optional prefix ``pretrain_`` or ``pretraining_``."""
    return re.sub(r"^pretrain(ing)?", "", squash(name))


def is_pair(word: str) -> bool:
    """Return True if ``word`` is ``NAME=VALUE``, with a name that may have dots."""
    return re.fullmatch(r"[A-Za-z_][\w.]*=.*", word, re.DOTALL) is not None


def nearest(
    word: str, choices: Iterable[str], form: Callable[[str], str] = squash, *, likeness: float = 0.5
) -> str | None:
    """Return the one of ``choices`` that is nearest to ``word``, None if none is close.

    Words are compared after ``form``. ``squash_workload`` removes the prefix that all workloads
    share. ``likeness``, from 0 to 1, is the least similarity (difflib's ratio).
    """
    import difflib

    by_form = {form(choice): choice for choice in choices}
    close = difflib.get_close_matches(form(word), by_form, n=1, cutoff=likeness)
    return by_form[close[0]] if close else None


def suggest(word: str, choices: Collection[str], *, likeness: float = 0.5) -> str:
    """Return the hint for a word that is not one of ``choices``: the nearest one, else all."""
    close = nearest(word, choices, likeness=likeness)
    if close is not None:
        return f"did you mean '{close}'?"
    return "one of " + ", ".join(choices) if choices else "none is available"


def listed(names: Sequence[str], limit: int = 8, separator: str = ", ") -> str:
    """The first ``limit`` names, and the number of the others: ``a, b and 3 more``."""
    omitted = f" and {len(names) - limit} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + omitted


def shorter(experiment: str) -> Iterator[str]:
    """Yield the name of an experiment in shorter and shorter forms.

    The least informative parts are omitted first: ``pretrain_``, then parallelism without effect
    (``tp1``, ``vpNone``), then the other numbers one by one, replaced by ``..``. Workload, size,
    dtype, GPU count and the text after the numbers are kept. If no model is trained, the words of
    the parameters are such numbers. The name of a workload alone loses ``pretrain_``. Other texts
    are not changed.
    """
    yield experiment
    parts = _parts_of(experiment)
    if parts is None:
        if (workload := re.fullmatch(r"pretrain_([^_]+)", experiment)) is not None:
            yield workload[1]
        return
    begin, numbers, end = parts
    whole = "_".join([begin, *numbers]) + end
    if whole != experiment:
        yield whole
    numbers = [word for word in numbers if not re.fullmatch(r"[tpcv]p(1|None)", word)]
    yield "_".join([begin, *numbers]) + end
    for omitted in range(1, len(numbers) + 1):
        yield f"{begin}..{'_'.join(numbers[omitted:])}{end}"


def apart(names: Sequence[str], width: int) -> list[str] | None:
    """Return the names in at most ``width`` characters, still different. None if impossible.

    A name is shortened like in ``shorter``, but keeps the numbers in which it differs from others
    of the same workload, size, dtype and GPU count. Other texts lose their middle.
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
        if (short := next(fits, None)) is None:
            if numbers or width < _LEAST:
                return None
            short = f"{name[: width // 2 - 2]}...{name[width // 2 + 1 - width :]}"
        shown[name] = short
    return [shown[name] for name in names] if len(set(shown.values())) == len(distinct) else None


def _numbers_of(name: str) -> tuple[str, set[str]]:
    """The text before and after the numbers of an experiment's name, and the numbers."""
    parts = _parts_of(name)
    return (f"{parts[0]}..{parts[2]}", set(parts[1])) if parts else (name, set())


def _parts_of(name: str) -> tuple[str, list[str], str] | None:
    """Return the text before the numbers of an experiment's name, the numbers, and the rest.

    None for other texts. If no model is trained, all words after the GPU count are numbers: they
    are parameters.
    """
    match = re.fullmatch(_EXPERIMENT, name) or re.fullmatch(_UNTRAINED, name)
    return None if match is None else (match[1], match[2].split("_")[1:], match[3] or "")


def _keeping(name: str, required: set[str]) -> Iterator[str]:
    """Like ``shorter``, but only forms with all numbers ``required``, and at last no others."""
    for less in shorter(name):
        if required <= set(re.split(r"_|\.\.", less)):
            yield less
    if required:
        parts = _parts_of(name)
        assert parts is not None
        yield f"{parts[0]}..{'_'.join(word for word in parts[1] if word in required)}{parts[2]}"


def _spellings(
    names: Iterable[str], form: Callable[[str], str] = squash
) -> Iterator[tuple[str, str]]:
    """Yield each form of a name with the name. A mapping's values may have ``aliases``."""
    for name in names:
        yield form(name), name
        if isinstance(names, Mapping):
            for alias in getattr(names[name], "aliases", ()):
                yield form(alias), name


def begins_with_workload(name: str, keys: Collection[str]) -> bool:
    """Return True if ``name`` is a spelling of one of ``keys``, perhaps with any size after it."""
    squashed = squash_workload(name)
    return any(squashed.startswith(form) for form, _ in _spellings(keys, squash_workload))


def find_workload(name: str, keys: Collection[str]) -> str:
    """Return the key that ``name`` is a spelling of. Raises UsageError for none or several.

    ``keys`` may be the workloads by key, which have ``aliases``.
    """
    if name in keys:
        return name
    squashed = squash_workload(name)
    matches = list(
        dict.fromkeys(key for form, key in _spellings(keys, squash_workload) if form == squashed)
    )
    if not matches:
        raise _workload_unknown(name, keys, keys)
    if len(matches) > 1:
        raise _ambiguous(name, matches)
    return matches[0]


def as_keys(names: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Replace each of ``names`` by the key that it is a spelling of. Unknown names are kept.

    ``keys`` are as in ``find_workload``.
    """
    by_form = dict(_spellings(keys, squash_workload))
    return [by_form.get(squash_workload(name), name) for name in names]


def find_size(name: str, sizes: Collection[str]) -> str | None:
    """The size among ``sizes`` that ``name`` is a spelling of, or None.

    ``sizes`` may be the sizes by name, which have ``aliases``.
    """
    return next((size for form, size in _spellings(sizes) if form == squash(name)), None)


def find_named_sizes(name: str, sizes: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
    """Return every key and size that ``name`` names together, as ``pretrain_nemotron4_15b`` does.

    A size and one of its aliases are a size too: ``kimi-k2_1t`` is k2 of kimi.
    """
    squashed = squash_workload(name)
    fits = set()
    for key in sizes:
        start = squash_workload(key)
        if not squashed.startswith(start):
            continue
        for form, size in _spellings(sizes[key]):
            if squashed in (start + form, start + squash(size) + form):
                fits.add((key, size))
    return fits


def find_workload_and_size(
    name: str,
    sizes: Mapping[str, Collection[str]],
    *,
    on: str | None = None,
    usable_sizes: Callable[[str], Collection[str]] | None = None,
) -> tuple[str, str | None]:
    """Split ``name`` into a workload's key and size, None for a key without ``_<size>``.

    ``sizes`` maps each workload's key to its sizes, as in ``find_size``. Raises UsageError if
    nothing or more than one thing matches. If only the size does not match, the error names the
    nearest of the workload's ``usable_sizes``, which run on the GPU type ``on`` (default: all).
    """
    if name in sizes:
        return name, None
    squashed = squash_workload(name)
    fits: set[tuple[str, str | None]] = {
        (key, None) for key in sizes if squash_workload(key) == squashed
    }
    fits |= find_named_sizes(name, sizes)
    if len(fits) == 1:
        return next(iter(fits))
    if fits:
        raise _ambiguous(
            name, [key if size is None else f"{key} with size {size}" for key, size in fits]
        )
    starts = [key for key in sizes if squashed.startswith(squash_workload(key))]
    if starts:
        key = max(starts, key=len)
        stripped = name.strip()
        ends = (
            end
            for end in range(len(stripped))
            if squash_workload(stripped[:end]) == squash_workload(key)
        )
        end = next(ends, 0)  # of the spelling of the key, which the size follows
        if not stripped[end - 1 : end + 1].isalpha():  # microbenchmark is another word
            size = stripped[end:].lstrip("-_.")
            raise size_unknown(
                key, size, sizes[key] if usable_sizes is None else usable_sizes(key), on=on
            )
    full = [f"{key}_{size}" for key in sizes for size in sizes[key]]
    of_size = [
        f"{key}_{named}" for key in sizes if (named := find_size(name, sizes[key])) is not None
    ]
    if 0 < len(of_size) <= _MOST_OFFERED:
        hint = f"did you mean {' or '.join(map(repr, of_size))}?"
        message = f"no workload is called '{name}'"
        raise UsageError(message, hint=hint, code=WORKLOAD_UNKNOWN, value=name)
    raise _workload_unknown(name, sizes, [*sizes, *full])


def size_unknown(
    key: str, size: str, sizes: Collection[str], *, on: str | None = None
) -> UsageError:
    """The error for a ``size`` that the workload ``key`` does not have (on the GPU type ``on``)."""
    suffix = f" on {on}" if on else ""
    near = nearest(size, sizes)
    fix = f"did you mean '{near}'? " if near is not None else ""
    if not sizes:
        fix = f"none of its sizes runs{suffix}" if on else "it has no size"
    elif near is None or len(sizes) > 1:
        fix += f"{f'on {on} it runs as' if on else 'it runs as'} {', '.join(sizes)}"
    fix = fix.strip()
    message = f"{key} has no size '{size}'{suffix}"
    return UsageError(
        message, hint=with_list_command(fix, key), code="size-unknown", key=key, value=size
    )


def with_list_command(fix: str, key: str) -> str:
    """The hint ``fix``, followed by the command that lists the workload ``key``."""
    command = f"llmb-run list -w {key}"
    return f"{fix}  {command}" if fix.endswith("?") else f"{fix}; see {command}"


_MOST_OFFERED = 4  # names in a hint
WORKLOAD_UNKNOWN = "workload-unknown"  # the code of a name that no workload has
#: How a workload that llmb does not bring is added.
ADD_ONE = (
    "a further one comes with its plugin (pip install), or as INSTALL/benchmarks/NAME.yaml"
    " (llmb-run docs write-a-plugin)"
)


def _workload_unknown(name: str, keys: Collection[str], names: Collection[str]) -> UsageError:
    """Return the error for a name that no workload has.

    The hint is the workloads that begin with ``name`` if there are several, or else the nearest of
    ``names``.
    """
    start = squash_workload(name)
    begun = [key for key in keys if start and squash_workload(key).startswith(start)]
    close = nearest(name, names, squash_workload)
    hint = f"did you mean '{close}'?" if close else f"llmb-run list shows the workloads; {ADD_ONE}"
    if len(begun) > 1:
        hint = f"did you mean {' or '.join(map(repr, begun))}?"
    return UsageError(
        f"no workload is called '{name}'", hint=hint, code=WORKLOAD_UNKNOWN, value=name
    )


def _ambiguous(name: str, matches: Iterable[str]) -> UsageError:
    message = f"'{name}' matches several workloads: {', '.join(sorted(matches))}"
    return UsageError(
        message, hint="write the full name of one of them", code="workload-ambiguous", value=name
    )
