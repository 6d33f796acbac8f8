# SPDX-License-Identifier: Apache-2.0
"""The variables of NVIDIA's launch scripts, their settings here, and what replaces them.

They are in launch_variables.yaml.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from llmb.contract import switches as sw
from llmb.core import files, yamlfile
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

# The settings that a variable of NVIDIA's launch scripts may set in `--env`, and in the `env` of a
# job list.
OF_A_JOB = frozenset({*sw.NAMES, *sw.PARAMS})
LISTED = OF_A_JOB | {"profile", "partition", "account", "qos", "reservation"}

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
    """Return the options of sbatch in ``a=1;b``. One without a value is True."""
    parts = (part.strip().lstrip("-").partition("=") for part in text.split(";"))
    return {
        name.strip(): value.strip() if equals else True
        for name, equals, value in parts
        if name.strip()
    }


def _slurm(text: str, *, of_list: bool) -> str:
    """The options of sbatch in ``a=1;b``, as llmb's command line has them."""
    texts = (
        name if value is True else f"{name}={value}" for name, value in read_slurm(text).items()
    )
    place = " on the command line" if of_list else ""
    return " ".join(f"--slurm-arg {shlex.quote(text)}" for text in texts) + place


_RECIPES = {
    "cs": "fp8_cs",
    "mx": "fp8_mx",
    "mxfp8": "fp8_mx",
    "sc": "fp8_sc",
    "ds": "delayed",
}
DELAYED = "delayed"


def _recipe(text: str) -> str:
    """The dtype that an FP8_RECIPE means, or DELAYED. Raises ValueError."""
    if (word := text.strip().lower()) not in _RECIPES:
        raise ValueError("must be cs, mx or ds: no workload here has another scaling of fp8")
    return _RECIPES[word]


def _recipe_in_words(text: str, *, of_list: bool) -> str:
    dtype = _RECIPES.get(text.strip().lower(), "fp8_...")
    if dtype == DELAYED:
        return "fp8: delayed" if of_list else "--set fp8=delayed"
    return f"dtypes: [{dtype}]" if of_list else f"--dtype {dtype}"


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
# of more than the value
_WRITERS: Mapping[str, Callable[..., str]] = {"slurm": _slurm, "recipe": _recipe_in_words}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of NVIDIA's launch scripts: how it is ``read``, and which setting it ``sets``."""

    sets: str = ""
    read: str = "text"
    #: The option to write instead. ``{}`` is its value.
    option: str = ""
    #: The key of a list to write instead. ``{}`` is its value.
    key: str = ""
    #: What to do if there is neither an option nor a key.
    note: str = ""
    #: The configuration reads it from the shell.
    layer: bool = False

    def value(self, text: str) -> object:
        """The value of its setting. Raises ValueError."""
        return READERS[self.read](text)

    def hint(self, text: str, *, of_list: bool) -> str:
        """Return the replacement for a variable of the shell, or if ``of_list`` of a job list."""
        replacement = self.instead(text, of_list=of_list)
        return f"write {replacement}" if replacement else self.note

    def instead(self, text: str, *, of_list: bool) -> str:
        """Return the key or option that replaces it, empty without one."""
        if self.read in _WRITERS:
            return _WRITERS[self.read](text, of_list=of_list)
        return ((self.key or self.option) if of_list else (self.option or self.key)).format(text)


@lru_cache(maxsize=1)
def table() -> Mapping[str, Variable]:
    rows: dict[str, dict[str, str]] = yamlfile.load_packaged(
        Path(__file__).with_suffix(".yaml")
    ).data
    return {name: Variable(**row) for name, row in rows.items()}  # type: ignore[arg-type]


def unread(environ: Mapping[str, str], read: Iterable[str]) -> Iterator[str]:
    """The variables in ``environ`` that are not ``read``, each with what to write instead."""
    names = frozenset(read)
    for name, variable in table().items():
        if name not in names and not variable.layer and (text := environ.get(name, "").strip()):
            yield f"{name} ({variable.hint(text, of_list=False)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A variable that is used as the setting ``sets``."""

    name: str
    sets: str
    value: object
    #: What to write instead of the variable.
    instead: str


def split(
    env: Mapping[str, str | bool], settings: Collection[str], *, of_list: bool
) -> tuple[dict[str, str | bool], list[Used]]:
    """Return ``env`` without the variables that set one of ``settings``, and these variables.

    ``of_list``: it is a job list's. Raises KeyFaultError for a value that cannot be read, for two
    variables of one setting with different values, and for variables without such a setting: no
    program of llmb reads them.
    """
    unread, used, unused = dict[str, str | bool](), list[Used](), dict[str, str]()
    for name, value in env.items():
        variable = table().get(name)
        text = str(value).lower() if isinstance(value, bool) else value
        if variable is None:
            unread[name] = value
        elif variable.sets not in settings:
            unused[name] = variable.hint(text, of_list=of_list)
        else:
            used.append(_used(name, variable, text, of_list=of_list))
    if unused:
        raise _without_effect(unused)
    for first in used:
        if second := next(
            (two for two in used if two.sets == first.sets and two.value != first.value), None
        ):
            message = f"{first.name} and {second.name} have different values"
            raise KeyFaultError(
                message, first.name, hint=f"write {first.instead}", code="variable-conflict"
            )
    return unread, used


def _used(name: str, variable: Variable, text: str, *, of_list: bool) -> Used:
    try:
        value = variable.value(text)
    except ValueError as error:
        hint = variable.hint("VALUE", of_list=of_list)
        raise KeyFaultError(
            f"{name}: {error}", name, hint=hint, code="variable-invalid", value=text
        ) from error
    return Used(
        name=name, sets=variable.sets, value=value, instead=variable.instead(text, of_list=of_list)
    )


def _without_effect(hints: Mapping[str, str]) -> KeyFaultError:
    names = " and ".join(filter(None, [", ".join([*hints][:-1]), [*hints][-1]]))
    verb = "configures" if len(hints) == 1 else "configure"
    message = f"{names} {verb} NVIDIA's launch scripts and would have no effect on a job here"
    words = [f"{name}: {hint}" if len(hints) > 1 else hint for name, hint in hints.items()]
    return KeyFaultError(message, next(iter(hints)), hint="; ".join(words))
