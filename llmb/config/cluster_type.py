# SPDX-License-Identifier: Apache-2.0
"""A cluster type as data: its section of cluster_config.yaml, how workloads run on it, its questions, its cluster."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster
    from llmb.config.schema import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTraits:
    """How workloads run on a cluster. The defaults are those of a batch system with Python environments.

    ``runs_in``: what ranks start in: a Python environment that llmb-install makes; an image that it stores as a file;
    or an image by its reference, which the cluster fetches. ``trains``: what trains the models and is installed for
    them: NeMo or Megatron-Bridge, with torch's program for size tiny alone; or torch's program for every size.
    ``nodes``: how llmb-install learns GPU type and processors of the nodes: from this machine, from the scheduler, or
    from the answers alone. ``one_machine``: a job has one node, this machine, and one job runs after another.

    ``sbatch_options``: jobs take sbatch's options (``--slurm-arg``). ``slurm_variables``: ranks see Slurm's variables.
    ``sets_vboost``: the job's script can raise the GPUs' clocks. ``writable_images``: a job can choose whether ranks
    may write into their image.

    ``instead``: on a cluster without sbatch's options, what to do instead of one, by its long name (``partition``), and
    under ``others`` for all others; it is the hint of the error.
    """

    runs_in: Literal["environment", "image-file", "image-reference"] = "environment"
    trains: Literal["nemo", "torch"] = "nemo"
    nodes: Literal["this-machine", "scheduler", "answers"] = "answers"
    one_machine: bool = False
    sbatch_options: bool = False
    slurm_variables: bool = False
    sets_vboost: bool = False
    writable_images: bool = False
    instead: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def uses_images(self) -> bool:
        """Whether ranks start inside container images."""
        return self.runs_in != "environment"

    @property
    def pulls_images(self) -> bool:
        """Whether the cluster fetches images by their references."""
        return self.runs_in == "image-reference"

    def instead_of(self, option: str) -> str:
        """What to do instead of the option ``option`` of sbatch, on a cluster that has none of them."""
        return self.instead.get(option) or self.instead.get("others") or "remove it"


_NAME = re.compile(r"[a-z][a-z0-9_-]*")


_BATCH = ClusterTraits()


def _same(value: Any) -> Any:
    return value


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQuestion:
    """A question of llmb-install for the value at ``key`` of the type's section (dotted: ``pvc.name``).

    ``label``: its name in the review. ``choices``: of a question of the kind ``one``; a function gets the user's
    environment. ``default``: a value, or a function of the environment. ``variable``: an environment variable whose
    value answers the question. ``required``: whether an empty answer is refused. ``parse``: the value for a typed text,
    by default the text; raises ValueError for a wrong one. ``show``: its inverse. ``check``: what is wrong with a
    value, from a question or a file; None if nothing is. ``empty``: how the review shows an empty answer.
    ``find_out``: for who does not know the answer, how to find it out; a line that begins with blanks is a command to
    paste. The word none is an empty answer where it is not ``required``. ``llmb.text.addresses`` has checks.
    """

    key: str
    text: str
    label: str = ""
    kind: Literal["text", "folder", "one"] = "text"
    choices: Sequence[str] | Callable[[Mapping[str, str]], Sequence[str]] = ()
    default: Any = ""
    variable: str = ""
    required: bool = False
    parse: Callable[[str], Any] = _same
    show: Callable[[Any], str] = _shown
    check: Callable[[Any], str | None] = lambda value: None
    empty: str = "none"
    find_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterType:
    """A cluster type by the name that ``cluster_type`` in cluster_config.yaml gives it.

    ``create`` makes the cluster of a configuration: a function, or its place ``module:function``, so that its module is
    imported only when jobs are submitted or polled. ``title``: a phrase for the question which scheduler to use;
    ``label``: its name in messages, by default ``name``.

    ``schema``: the dataclass of its section of cluster_config.yaml and of the answers, read like llmb's own sections;
    None for a type without one. ``section``: the section's key, by default the type's name. ``ClusterConfig.section``
    is the section that was read.

    ``traits``: how workloads run there, or a function of the section for a type whose section decides that.
    ``questions``: what llmb-install asks. ``secrets``: names of secrets that every submission needs, from the
    environment or the user's file. ``folder_variable``: a variable with the folder in which to install.
    ``writes_defaults``: whether llmb-install writes all keys of the section, not only those that differ. ``detect``:
    what was found of such a cluster here, given the environment; None where there is none. ``check``: notes on what
    would not work, for a section and the environment; called while an install is planned.

    ``source``: ``distribution:entry`` of its plugin, set by llmb; empty for llmb's own types.
    """

    name: str
    create: Callable[[ClusterConfig], Cluster] | str
    title: str = ""
    label: str = ""
    schema: type | None = None
    section: str = ""
    traits: ClusterTraits | Callable[[Any], ClusterTraits] = _BATCH
    questions: tuple[ClusterQuestion, ...] = ()
    secrets: tuple[str, ...] = ()
    folder_variable: str = ""
    writes_defaults: bool = False
    detect: Callable[[Mapping[str, str]], str | None] = lambda environ: None
    check: Callable[[Any, Mapping[str, str]], Sequence[str]] = lambda section, environ: ()
    source: str = ""

    @property
    def key(self) -> str | None:
        """The key of its section; None without one."""
        return (self.section or self.name) if self.schema is not None else None

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.label or self.name

    @property
    def required(self) -> tuple[str, ...]:
        """The dotted keys of the answers that have no default and cannot be detected."""
        gpu = ("gpu_type",) if self.traits_of(None).nodes == "answers" else ()
        return (*gpu, *(f"{self.key}.{name}" for name in required_fields(self.schema)))

    def has(self, schema: type) -> bool:
        """Whether its section is of the class ``schema``."""
        return self.schema is schema

    def traits_of(self, section: Any) -> ClusterTraits:
        """How workloads run on the cluster with this section, None without one."""
        if isinstance(self.traits, ClusterTraits):
            return self.traits
        return self.traits(section)

    def make(self, config: ClusterConfig) -> Cluster:
        """The cluster of ``config``."""
        create: Any = pkgutil.resolve_name(self.create) if isinstance(self.create, str) else self.create
        cluster: Cluster = create(config)
        return cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedType:
    """A plugin that is skipped and why; ``offers``: it has the type that was asked for, otherwise it may have it."""

    source: str
    reason: str
    offers: bool


class OfferedTypes(dict[str, ClusterType]):
    """Cluster types by name. ``skipped``: the plugins that would offer, or may offer, a type of another name."""

    def __init__(self, types: Mapping[str, ClusterType], skipped: Callable[[str], Sequence[SkippedType]]) -> None:
        super().__init__(types)
        self.skipped = skipped


def required_fields(schema: type | None) -> tuple[str, ...]:
    if schema is None:
        return ()
    absent = dataclasses.MISSING
    return tuple(
        one.name for one in dataclasses.fields(schema) if one.default is absent and one.default_factory is absent
    )


def is_name(name: object) -> bool:
    """Whether ``name`` can be that of a cluster type: lower case, digits, hyphens, underscores."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
