# SPDX-License-Identifier: Apache-2.0
"""The questions that cluster types bring, as questions of the wizard."""

from collections.abc import Callable, Iterator
from typing import Any

from llmb.config.cluster_type import ClusterQuestion, ClusterType
from llmb.config.reading import raised_by
from llmb_installer.answers import nested
from llmb_installer.wizard.question import Option, Question, View


def of(kind: ClusterType) -> Iterator[Question]:
    """The questions of one cluster type, asked while it is the chosen one."""
    return (_question(kind, own) for own in kind.questions)


def _question(kind: ClusterType, own: ClusterQuestion) -> Question:
    key = f"{kind.key}.{own.key}"
    return Question(
        key=key,
        label=own.label or own.key,
        text=own.text,
        kind=own.kind,
        default=lambda view: _called(kind, own, "default", lambda: _default(own, view)),
        options=lambda view: [Option(one, one) for one in _called(kind, own, "choices", lambda: _choices(own, view))],
        applies=lambda view: view.kind == kind.name,
        check=lambda _, value: _called(kind, own, "check", lambda: _fault(own, value)),
        layer=lambda view, value: _layer(key, own, view, value),
        value=lambda answer: _called(kind, own, "show", lambda: own.show(answer)),
        empty=own.empty,
        optional=not own.required,
        find_out=own.find_out,
    )


def _layer(key: str, own: ClusterQuestion, view: View, value: Any) -> dict[str, Any]:
    """The answer; an empty one leaves the section's default, and removes an answer that there was."""
    if value == "":
        return nested(key, None) if view.has(key) else {}
    return nested(key, own.parse(value))


def _default(own: ClusterQuestion, view: View) -> str:
    environ = view.detected.environ
    if own.variable and (given := environ.get(own.variable)):
        return given if _fault(own, given) is None else ""
    return own.show(own.default(environ) if callable(own.default) else own.default)


def _choices(own: ClusterQuestion, view: View) -> list[str]:
    found = own.choices(view.detected.environ) if callable(own.choices) else own.choices
    return list(found)


def _fault(own: ClusterQuestion, text: Any) -> str | None:
    if str(text).strip() == "":
        return "write a value" if own.required else None
    try:
        return own.check(own.parse(text))
    except ValueError as error:
        return str(error)


def _called(kind: ClusterType, own: ClusterQuestion, part: str, call: Callable[[], Any]) -> Any:
    """What a function of the cluster type returns. Raises LlmbError, which names its plugin."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise raised_by(kind, f"{part} of the question for '{own.key}'", error) from error
