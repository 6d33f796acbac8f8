# SPDX-License-Identifier: Apache-2.0
"""Calls hooks of one plugin: guarded, with its settings, and checks the kind of answers.

Also finds the skipped plugin that would offer a cluster type or a command, which is then no mistake
of the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import pluggy

from llmb import api
from llmb.contract.cluster_type import SkippedType
from llmb.contract.launch import Launch, Program
from llmb.contract.switches import parse_mount
from llmb.errors import KeyFaultError, PluginError
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.guard import guarded, wrong_answer
from llmb.plugins.owners import Problem

if TYPE_CHECKING:
    from llmb.plugins.answers import Wrapping
    from llmb.plugins.sources import Source

Arguments = dict[str, Any]


@dataclass(eq=False, kw_only=True)
class Calls:
    """Calls hooks of the plugins of ``manager``."""

    manager: pluggy.PluginManager
    #: Each plugin's origin by its name.
    sources: dict[str, Source] = field(default_factory=dict)
    _settings: dict[str, type | None] = field(default_factory=dict)
    _overdue: dict[tuple[str, str], PluginError] = field(default_factory=dict)

    def implementation(self, source: str, hook: str) -> Callable[..., Any] | None:
        """Return the plugin's own function for ``hook``, or None."""
        return getattr(self.manager.get_plugin(source), hook, None)

    def owner(self, source: str) -> str:
        """Return the top module of a plugin, which tracebacks name. Empty for llmb's own."""
        return self.sources[source].owner if source in self.sources else ""

    def call(self, source: str, hook: str, call: Callable[[], Any]) -> Any:
        """The answer of ``call``, which calls ``hook``. Raises PluginError, LlmbError of the hook.

        A hook that was interrupted once is not called again: it would take the whole time limit
        again.
        """
        if (source, hook) in self._overdue:
            raise self._overdue[source, hook]
        try:
            with guarded(source, hook, owner=self.owner(source)):
                return call()
        except PluginError as error:
            if error.code == "plugin-timeout":
                self._overdue[source, hook] = error
            raise

    def require(self, source: str, hook: str, answer: object, kinds: tuple[type, ...]) -> None:
        """Raise PluginError unless ``answer`` is one of ``kinds``."""
        if not isinstance(answer, kinds):
            raise self.answer_error(
                source, hook, answer, f"a {' or a '.join(kind.__name__ for kind in kinds)}"
            )

    def answer_error(self, source: str, hook: str, answer: object, expected: str) -> PluginError:
        """The error for an answer that is not what is ``expected``."""
        return wrong_answer(source, hook, answer, expected, self.implementation(source, hook))

    def settings_kind(self, source: str) -> type | None:
        """Return the dataclass of a plugin's settings, or None. Raises PluginError."""
        if source not in self._settings:
            implementation, hook = self.implementation(source, "llmb_settings"), "llmb_settings"
            kind = None
            if implementation is not None:
                kind = self.call(source, hook, implementation)
                if not (isinstance(kind, type) and is_dataclass(kind)):
                    raise self.answer_error(source, hook, kind, "a dataclass")
            self._settings[source] = kind
        return self._settings[source]

    def with_settings(self, source: str, arguments: Arguments) -> Arguments:
        """Return the arguments with the plugin's settings in the site. Raises InputFaults."""
        site, kind = (
            arguments.get("site"),
            self.settings_kind(source) if "site" in arguments else None,
        )
        if kind is None or not isinstance(site, api.Site):
            return arguments
        from llmb.plugins import settings

        with guarded(source, "llmb_settings", owner=self.owner(source)):
            settings_value = settings.read_own(site.plugins, source, kind)
        return {**arguments, "site": replace(site, own_settings=settings_value)}

    def wrapped(self, source: str, launch: api.Launch, arguments: Arguments) -> api.Launch:
        """Return ``launch`` as the wrapper of a plugin changes it.

        ``changed_by`` names the plugin and the fields.
        """
        from llmb.plugins.answers import changes, through

        wrapper = next(
            implementation
            for implementation in self.manager.hook.llmb_launch.get_hookimpls()
            if implementation.plugin_name == source
        )
        values = self.with_settings(source, arguments)

        def wrap() -> api.Launch:
            return through(
                cast("Wrapping", wrapper.function(*(values[name] for name in wrapper.argnames))),
                launch,
            )

        try:
            after: api.Launch = self.call(source, "llmb_launch", wrap)
        except PluginError as error:
            without = f"remove it from 'plugins' of {CONFIG_FILE} to run without it"
            if without not in (error.hint or ""):
                error.hint = "; ".join(filter(None, (error.hint, without)))
            raise
        changed = tuple(changes(launch, after))
        return (
            replace(after, changed_by={**launch.changed_by, source: changed}) if changed else after
        )


# the parts of problems of llmb_clusters, llmb_commands
_ALL_TYPES, _ALL_COMMANDS = "cluster types", "commands"


def skipped_types(name: str, problems: Iterable[Problem], calls: Calls) -> list[SkippedType]:
    """Return the skipped plugins that offer, or may offer, the cluster type ``name``."""
    skipped = []
    for problem in problems:
        is_type = problem.part == f"cluster type '{name}'"
        if is_type or _may_offer(problem, _ALL_TYPES, calls):
            skipped.append(
                SkippedType(
                    source=problem.source,
                    reason=problem.reason,
                    offers=is_type or _mentions(problem.source, name, calls),
                )
            )
    return skipped


def skipped_commands(
    name: str, problems: Sequence[Problem], calls: Calls
) -> tuple[list[str], list[str]]:
    """Return why nobody has the command ``name``, and the skipped plugins that may offer it."""
    of_command = [problem for problem in problems if problem.part == f"command '{name}'"]
    candidates = [str(problem) for problem in problems if _may_offer(problem, _ALL_COMMANDS, calls)]
    if len(of_command) > 1 and all(problem.code == "name-duplicate" for problem in of_command):
        sources = " and ".join(problem.source for problem in of_command)
        return [f"plugins {sources} offer it, so none of them is used: uninstall one"], candidates
    return [str(problem) for problem in of_command], candidates


def _may_offer(problem: Problem, part: str, calls: Calls) -> bool:
    """Return True if all of a plugin is skipped, or ``part`` of it."""
    return problem.part == part or (
        not problem.part and not calls.manager.has_plugin(problem.source)
    )


def _mentions(source: str, name: str, calls: Calls) -> bool:
    """Return True if a plugin's module, importable or not, has ``name`` as a text."""
    origin = calls.sources.get(source)
    file = origin.find_file() if origin is not None else None
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file is not None else ""
    except OSError:
        return False
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# that earlier releases did not use, so that their records may have them
_OWN_FILES = frozenset({"reader.json"})
_MODULE = re.compile(r"[^\s./]+(\.[^\s./]+)*")


def check_launch(launch: Launch, name: str) -> None:
    """Raise KeyFaultError at the first field with a meaningless value.

    ``name`` is the experiment's.
    """
    _check_texts(launch, ())
    if launch.name != name:
        message, hint = (
            f"'{launch.name}' is not the job's name '{name}'",
            "name=job.experiment_name",
        )
        raise KeyFaultError(message, "name", hint=hint, code="name-differs", value=launch.name)
    for key in ("environment", "secrets"):
        for variable in getattr(launch, key):
            if not _VARIABLE.fullmatch(variable):
                hint = "use letters, digits and _, and no digit first"
                raise _invalid(
                    f"'{variable}' is not a valid name of a variable", key, variable, hint
                )
    for key in ("image", "venv"):
        if (value := getattr(launch, key)) is not None and not value.strip():
            raise _invalid(f"{key} is empty", key, value, f"write {key}=None for none")
    for mount in launch.mounts:
        try:
            parse_mount(mount)
        except ValueError as error:
            raise KeyFaultError(str(error), "mounts", code="value-invalid", value=mount) from error
    for program in launch.programs:
        _check_program(program)
    for staged in launch.files:
        if str(PurePosixPath(staged.name)) in _OWN_FILES:
            message, hint = (
                f"'{staged.name}' is a name that llmb uses in the run's folder",
                "choose another name",
            )
            raise KeyFaultError(
                message, "files", hint=hint, code="file-reserved", value=staged.name
            )
        if not staged.name.isprintable():
            message = f"{staged.name!r} has a character that a file's name cannot show"
            raise _invalid(message, "files", staged.name, "choose another name")


def _check_program(program: Program) -> None:
    if program.module is not None and not _MODULE.fullmatch(program.module):
        message = f"'{program.module}' is not the name of a Python module"
        raise _invalid(message, "module", program.module, "as in Program(module='package.module')")
    if program.argv and not program.argv[0].strip():
        raise _invalid(
            "the command is empty", "argv", program.argv, "as in Program(argv=('ls', '-l'))"
        )


def _check_texts(value: object, path: tuple[str, ...]) -> None:
    """Raise KeyFaultError at a text that no file, variable or argument can have.

    ``path`` is the field's, from the top.

    A program's arguments and variables end at a NUL, and half of a surrogate pair is no byte and no
    character.
    """
    if isinstance(value, str):
        invalid_part = (
            "a NUL character"
            if "\0" in value
            else None
            if _can_be_written(value)
            else "half of a surrogate pair"
        )
        if invalid_part is not None:
            raise KeyFaultError(
                f"a text has {invalid_part}",
                *path,
                hint="remove it",
                code="text-invalid",
                value=value,
            )
        return
    for name, part in _parts(value):
        _check_texts(part, (*path, name) if name else path)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value: the fields of a dataclass by name, others without one."""
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, Mapping):
        yield from (("", item) for pair in value.items() for item in pair)
    elif isinstance(value, tuple):
        yield from (("", item) for item in value)


def _can_be_written(text: str) -> bool:
    try:
        # bytes that are not in UTF-8 come from the user's command line
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _invalid(message: str, field: str, value: object, hint: str) -> KeyFaultError:
    return KeyFaultError(message, field, hint=hint, code="value-invalid", value=value)
