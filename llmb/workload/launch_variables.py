# SPDX-License-Identifier: Apache-2.0
"""The variables of NVIDIA's launch scripts, from launch_variables.yaml: what each sets here, and what replaces it."""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llmb.errors import KeyFaultError
from llmb.system import files
from llmb.text import yamlfile
from llmb.workload import switches as sw

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def read_count(text: str, least: int = 1) -> int:
    """A whole number from ``least``. Raises ValueError."""
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(f"must be a whole number from {least}")
    return int(text)


def read_flag(text: str) -> bool:
    """``true`` or ``false`` in any usual spelling. Raises ValueError."""
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError("must be true or false")
    return word in _TRUE


def read_slurm(text: str) -> dict[str, str | bool]:
    """The options of sbatch in ``a=1;b``; True for one without a value."""
    parts = (part.strip().lstrip("-").partition("=") for part in text.split(";"))
    return {name.strip(): value.strip() if equals else True for name, equals, value in parts if name.strip()}


def _slurm(text: str, *, of_list: bool) -> str:
    """The options of sbatch in ``a=1;b``, as llmb's command line has them."""
    texts = (name if value is True else f"{name}={value}" for name, value in read_slurm(text).items())
    where = " on the command line" if of_list else ""
    return " ".join(f"--slurm-arg {shlex.quote(text)}" for text in texts) + where


_RECIPES = {"cs": "fp8_cs", "mx": "fp8_mx", "mxfp8": "fp8_mx", "ds": "delayed"}
DELAYED = "delayed"


def _recipe(text: str) -> str:
    """The dtype that an FP8_RECIPE means, or DELAYED. Raises ValueError."""
    if (word := text.strip().lower()) not in _RECIPES:
        raise ValueError("must be cs, mx or ds: no workload here has another scaling of fp8")
    return _RECIPES[word]


def _recipe_in_words(text: str, *, of_list: bool) -> str:
    found = _RECIPES.get(text.strip().lower(), "fp8_...")
    if found == DELAYED:
        return "fp8: delayed" if of_list else "--set fp8=delayed"
    return f"dtypes: [{found}]" if of_list else f"--dtype {found}"


READERS: Mapping[str, Callable[[str], object]] = {
    "count": read_count,
    "counts": lambda text: (read_count(text),),
    "start": lambda text: read_count(text, 0),
    "word": lambda text: text.strip().lower(),
    "words": lambda text: (text.strip().lower(),),
    "text": str.strip,
    "flag": read_flag,
    "clock": lambda text: sw.parse_clock(text) and text.strip(),  # what is invalid raises
    "ranks": lambda text: sw.rank_ranges(text) and text.strip(),
    "image": sw.absolute_image,
    "folder": lambda text: str(files.expand(text.strip()).absolute()),
    "mounts": lambda text: tuple(sw.parse_mount(item) for item in text.split(",") if item.strip()),
    "slurm": read_slurm,
    "recipe": _recipe,
}
_WRITERS: Mapping[str, Callable[..., str]] = {"slurm": _slurm, "recipe": _recipe_in_words}  # of more than the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable: the setting that it ``sets`` and how it is ``read``; what to write instead of it.

    ``option`` on a command line and ``key`` in a list have ``{}`` for the value; ``note``: where there is neither.
    ``layer``: the configuration reads it from the shell.
    """

    sets: str = ""
    read: str = "text"
    option: str = ""
    key: str = ""
    note: str = ""
    layer: bool = False

    def value(self, text: str) -> object:
        """The value of its setting. Raises ValueError."""
        return READERS[self.read](text)

    def hint(self, text: str, *, of_list: bool) -> str:
        """What to write instead; ``of_list``: the variable is in a job list."""
        found = self.instead(text, of_list=of_list)
        return f"write {found}" if found else self.note

    def instead(self, text: str, *, of_list: bool) -> str:
        """The key or option that replaces it; empty where there is none."""
        if self.read in _WRITERS:
            return _WRITERS[self.read](text, of_list=of_list)
        return ((self.key or self.option) if of_list else (self.option or self.key)).format(text)


@lru_cache(maxsize=1)
def table() -> Mapping[str, Variable]:
    rows: dict[str, dict[str, str]] = yamlfile.load(Path(__file__).with_suffix(".yaml")).data
    return {name: Variable(**row) for name, row in rows.items()}  # type: ignore[arg-type]


def unread(environ: Mapping[str, str], read: Iterable[str]) -> Iterator[str]:
    """The variables in ``environ`` that are not ``read``, each with what to write instead."""
    known = frozenset(read)
    for name, variable in table().items():
        if name not in known and not variable.layer and (text := environ.get(name, "").strip()):
            yield f"{name} ({variable.hint(text, of_list=False)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A variable that is used as the setting ``sets`` with ``value``; ``instead``: how to write that."""

    name: str
    sets: str
    value: object
    instead: str


def split(
    env: Mapping[str, str | bool], settings: Collection[str], *, of_list: bool
) -> tuple[dict[str, str | bool], list[Used]]:
    """The environment without the variables that set one of ``settings``, and those.

    ``of_list``: it is a job list's. Raises KeyFaultError for a value that cannot be read, for two variables of one
    setting with different values, and for variables without such a setting: no program of llmb reads them.
    """
    rest, used, unused = dict[str, str | bool](), list[Used](), dict[str, str]()
    for name, given in env.items():
        variable = table().get(name)
        text = str(given).lower() if isinstance(given, bool) else given
        if variable is None:
            rest[name] = given
        elif variable.sets not in settings:
            unused[name] = variable.hint(text, of_list=of_list)
        else:
            used.append(_used(name, variable, text, of_list=of_list))
    if unused:
        raise _without_effect(unused)
    for one in used:
        if other := next((two for two in used if two.sets == one.sets and two.value != one.value), None):
            message = f"{one.name} and {other.name} have different values"
            raise KeyFaultError(message, one.name, hint=f"write {one.instead}", code="variable-conflict")
    return rest, used


def _used(name: str, variable: Variable, text: str, *, of_list: bool) -> Used:
    try:
        value = variable.value(text)
    except ValueError as error:
        hint = variable.hint("VALUE", of_list=of_list)
        raise KeyFaultError(f"{name}: {error}", name, hint=hint, code="variable-invalid", value=text) from error
    return Used(name=name, sets=variable.sets, value=value, instead=variable.instead(text, of_list=of_list))


def _without_effect(hints: Mapping[str, str]) -> KeyFaultError:
    names = " and ".join(filter(None, [", ".join([*hints][:-1]), [*hints][-1]]))
    verb = "configures" if len(hints) == 1 else "configure"
    message = f"{names} {verb} NVIDIA's launch scripts and would have no effect on a job here"
    words = [f"{name}: {hint}" if len(hints) > 1 else hint for name, hint in hints.items()]
    return KeyFaultError(message, next(iter(hints)), hint="; ".join(words))
