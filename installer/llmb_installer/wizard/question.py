# SPDX-License-Identifier: Apache-2.0
"""What a question is: a value with functions of what is known so far. Nothing here touches the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llmb.workload.gpus import known_types
from llmb.workload.spec import Workload
from llmb_installer.answers.layers import given, joined, nested, value_at
from llmb_installer.detect.look import Detected
from llmb_installer.detect.scheduler import SlurmFound


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that is known when a question comes up: what was found, the answers so far as ``data``, the workloads."""

    detected: Detected
    workloads: Mapping[str, Workload]
    data: Mapping[str, Any] = field(default_factory=dict)

    def at(self, key: str) -> Any:
        """The answer at a dotted key, None where there is none yet."""
        return value_at(self.data, key)

    def says(self, key: str) -> bool:
        """Whether there is an answer at a dotted key, be it null."""
        return given(self.data, key)

    def over(self, layer: Mapping[str, Any]) -> View:
        """The view with ``layer`` over its answers."""
        return replace(self, data=joined(self.data, layer))

    @property
    def slurm(self) -> SlurmFound:
        """What Slurm says; empty where there is none."""
        return self.detected.slurm or SlurmFound()

    @property
    def kind(self) -> str:
        """The cluster type answered."""
        return str(self.at("cluster_type"))

    @property
    def rows(self) -> str:
        """The known GPU type whose rows the cluster's own takes."""
        name = str(self.at("gpu_type"))
        return str(self.at(f"gpu_types.{name}.like") or name) if name not in known_types() else name

    @property
    def uses_images(self) -> bool:
        """Whether jobs run in images."""
        return self.kind == "runai" or (self.kind == "slurm" and self.at("slurm.container") != "none")


@dataclass(frozen=True, slots=True)
class Option:
    """One of the answers to choose from: its value, how it is shown, and why it cannot be had where it cannot."""

    value: Any
    title: str
    refused: str = ""


def _never(_: View) -> bool:
    return False


def _always(_: View) -> bool:
    return True


def _no_options(_: View) -> list[Option]:
    return []


def _itself(value: Any) -> Any:
    return value


def _nothing(_: View, __: Any) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, for the answer at ``key``; ``also`` are keys that answer it too.

    ``applies``: whether it means anything here; ``clear``: whether its default needs no asking (the review shows it,
    and it can be changed there); ``check``: what is wrong with a value, None if nothing; ``note``: what to say of a
    value before the next question; ``layer``: what a value gives as answers, ``nested(key, value)`` if not said,
    and ``value`` the way back; ``empty``: how the review shows nothing.
    """

    key: str
    label: str
    text: str
    kind: Literal["text", "folder", "one", "many"]
    default: Callable[[View], Any]
    options: Callable[[View], list[Option]] = _no_options
    applies: Callable[[View], bool] = _always
    clear: Callable[[View], bool] = _never
    check: Callable[[View, Any], str | None] = _nothing
    note: Callable[[View, Any], str | None] = _nothing
    layer: Callable[[View, Any], dict[str, Any]] | None = None
    value: Callable[[Any], Any] = _itself
    also: tuple[str, ...] = ()
    empty: str = "none"

    def answers(self, view: View, value: Any) -> dict[str, Any]:
        """The answers that ``value`` gives."""
        return self.layer(view, value) if self.layer is not None else nested(self.key, value)

    def is_given(self, view: View) -> bool:
        """Whether a file or an option has answered it."""
        return any(view.says(key) for key in (self.key, *self.also))

    def fault(self, view: View, value: Any) -> str | None:
        """What is wrong with ``value``; None if nothing is."""
        if self.kind in ("one", "many"):
            open_ones = [option.value for option in self.options(view) if not option.refused]
            if any(item not in open_ones for item in (value if self.kind == "many" else [value])):
                return "not one of the choices"
        return self.check(view, value)

    def shown(self, view: View, value: Any) -> str:
        """``value`` as the review shows it."""
        if isinstance(value, (list, tuple)):
            return ", ".join(str(item) for item in value) or self.empty
        return self.empty if value in (None, "") else str(value)
