# SPDX-License-Identifier: Apache-2.0
"""A variable that configures another launcher: its setting here, and what to write instead."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from llmb.contract import switches as sw
from llmb.core import files, typed, yamlfile
from llmb.core.checked import check_types
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import Fault, InputFaults, KeyFaultError, collected

# The settings that a variable may set in `--env`, and in the `env` of a job list.
OF_A_JOB = frozenset({*sw.NAMES, *sw.PARAMS})
LISTED = OF_A_JOB | {"profile", "partition", "account", "qos", "reservation"}
# Those of a command line alone.
SCALES, NODES, CLUSTER_TYPE, SLURM_ARGS = "scales", "nodes", "cluster_type", "slurm_args"
#: The dtype that fp8 means, such as fp8_mx, or DELAYED.
FP8_RECIPE = "fp8_recipe"
_OF_COMMAND = (SCALES, NODES, "size", "dtypes", "gpu_type", CLUSTER_TYPE, SLURM_ARGS, FP8_RECIPE)
SETTINGS = LISTED | {*_OF_COMMAND}
DELAYED = "delayed"  # the word of the switch fp8

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
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


#: How the text of a variable is read, by the word of ``LaunchVariable.read``.
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
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchVariable:
    """A variable of another launcher. llmb uses it as a setting, or says what replaces it."""

    name: str = field(metadata=typed.INTERNAL)
    #: What it configures, as in ``Acme's launch scripts``.
    program: str = field(metadata=typed.INTERNAL)
    #: The setting of llmb that it sets, one of SETTINGS, empty without one.
    sets: str = ""
    #: How its text is read: a key of READERS.
    read: str = "text"
    #: The value of each word that it may have, in place of ``read``.
    meanings: Mapping[str, str] = field(default_factory=dict)
    #: Those words for people, after "must be".
    expects: str = ""
    #: The option to write instead. ``{}`` is its value.
    option: str = ""
    #: The key of a job list to write instead. ``{}`` is its value.
    key: str = ""
    #: What to do if there is neither an option nor a key.
    note: str = ""
    #: llmb's configuration reads it from the shell, for every command.
    of_config: bool = False
    #: Of one that sets ``profile``: which release of the launcher also measured a profiled
    #: configuration, in a second job, as in ``as in release 25.04``.
    measured_too: str = ""

    def __post_init__(self) -> None:
        check_types(self)
        if not _NAME.fullmatch(self.name):
            hint = "use capital letters, digits and _"
            message = f"'{self.name}' is no name of a variable"
            raise KeyFaultError(message, "name", hint=hint, value=self.name)
        for key, value, known in (("sets", self.sets, SETTINGS), ("read", self.read, READERS)):
            if value and value not in known:
                message = f"'{value}' is not known, {suggest(value, sorted(known))}"
                raise KeyFaultError(message, key, value=value)
        if not (self.sets or self.note):
            hint = "write the setting, or as note what a user does instead"
            raise KeyFaultError(f"{self.name} has neither sets nor note", hint=hint)

    def value(self, text: str) -> object:
        """The value of its setting. Raises ValueError."""
        if not self.meanings:
            return READERS[self.read](text)
        if (word := text.strip().lower()) not in self.meanings:
            raise ValueError(f"must be {self.expects or ' or '.join(self.meanings)}")
        return self.meanings[word]

    def hint(self, text: str, *, of_list: bool) -> str:
        """Return the replacement for a variable of the shell, or if ``of_list`` of a job list."""
        replacement = self.instead(text, of_list=of_list)
        return f"write {replacement}" if replacement else self.note

    def instead(self, text: str, *, of_list: bool) -> str:
        """Return the key or option that replaces it, empty without one."""
        if self.sets == SLURM_ARGS:
            return _slurm_args(text, of_list=of_list)
        if self.sets == FP8_RECIPE:
            dtype = self.meanings.get(text.strip().lower(), "fp8_...")
            if dtype == DELAYED:
                return "fp8: delayed" if of_list else "--set fp8=delayed"
            return f"dtypes: [{dtype}]" if of_list else f"--dtype {dtype}"
        return ((self.key or self.option) if of_list else (self.option or self.key)).format(text)


#: Of all launchers, by name.
Variables = Mapping[str, LaunchVariable]
NO_VARIABLES: Variables = MappingProxyType({})


def _slurm_args(text: str, *, of_list: bool) -> str:
    """The options of sbatch in ``a=1;b``, as llmb's command line has them."""
    texts = (
        name if value is True else f"{name}={value}" for name, value in read_slurm(text).items()
    )
    place = " on the command line" if of_list else ""
    return " ".join(f"--slurm-arg {shlex.quote(text)}" for text in texts) + place


def read_variables(path: str | Path, program: str) -> tuple[LaunchVariable, ...]:
    """Read the variables of ``program`` from YAML: the fields of each, below its name.

    Raises InputFaults with every fault.
    """
    document = yamlfile.load_packaged(Path(path))
    if not isinstance(document.data, dict):
        raise InputFaults([Fault(message=f"{path} is no mapping of variables", code="value-type")])
    variables: list[LaunchVariable] = []
    faults: list[Fault] = []
    for name in document.data:
        with collected(faults):
            variables.append(
                typed.read(LaunchVariable, document, (name,), name=str(name), program=program)
            )
    if faults:
        raise InputFaults(faults)
    return tuple(variables)
