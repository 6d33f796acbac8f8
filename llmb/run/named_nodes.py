# SPDX-License-Identifier: Apache-2.0
"""Names of several nodes in a submission: ``--exclude @suspects``, by a plugin's llmb_nodes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from llmb.contract.record import RunRecord
from llmb.contract.sbatch import NODE_OPTIONS
from llmb.contract.schema import ClusterConfig
from llmb.core.node_lists import has_brackets_closed, not_a_list
from llmb.errors import UsageError
from llmb.plugins.loaded import Plugins, ResultRow
from llmb.run import store

_NAME = re.compile(r"@([\w.-]+)")
KeptResults = Callable[[Sequence[RunRecord]], Sequence[ResultRow]]


def no_results(_runs: Sequence[RunRecord]) -> Sequence[ResultRow]:
    """Return nothing, for callers that read no results."""
    return ()


@dataclass(slots=True)
class NamedNodes:
    """Replaces names of nodes in the options of jobs. Each name is looked up once."""

    plugins: Plugins
    config: ClusterConfig
    #: Returns the results that are kept in the folders of runs.
    kept_results: KeptResults = no_results
    _nodes: dict[str, list[str]] = field(default_factory=dict)

    def replaced(self, options: Mapping[str, str | bool]) -> dict[str, str | bool]:
        """Return options of sbatch without names. Raises UsageError, PluginError."""
        return {
            name: self._of(name, value)
            if name in NODE_OPTIONS and isinstance(value, str)
            else value
            for name, value in options.items()
        }

    def _of(self, option: str, text: str) -> str | bool:
        """Return the nodes of ``text``, False if none is left to exclude."""
        if not has_brackets_closed(text):
            raise not_a_list(text, f"--{option}")
        if "@" not in text:
            return text
        words: list[str] = []
        for word in text.split(","):
            match = _NAME.fullmatch(word.strip())
            words += [word] if match is None else self._named(match[1])
        if words:
            return ",".join(dict.fromkeys(words))
        if option == "exclude":
            return False
        raise UsageError(
            f"--{option} {text}: it names no node",
            hint=f"omit --{option}, or name nodes",
            code="nodes-none",
            key=option,
            value=text,
        )

    def _named(self, name: str) -> list[str]:
        if name not in self._nodes:
            runs, _ = store.all_runs(self.config)
            self._nodes[name] = self.plugins.nodes(name, runs, self.kept_results(runs))
        return self._nodes[name]
