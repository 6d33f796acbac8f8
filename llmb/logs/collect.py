# SPDX-License-Identifier: Apache-2.0
"""Puts the lines of a log together: which attempt they belong to, and what is known after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmb.logs import lines
from llmb.logs.formats import MEGATRON_NAME, Format, formats_of
from llmb.logs.samples import Checkpoint, Environment, Samples, Step
from llmb.logs.scan import Hit, Line, Needle, needle
from llmb.logs.spec import ParseSpec

_END = needle("`Trainer.fit` stopped")
_SAVE, _LOAD = needle("Global Checkpoint Save", b"."), needle("Global Checkpoint Load", b"._")
_STEP_TIME = needle("GPU utilization")
_NETWORK, _NCCL_VERSION = needle("Using network "), needle("NCCL version ", b"+")
_LIGHTNING_WORLD = needle("distributed processes registered", b".w")
_MEGATRON_WORLD = needle("using world size")
_FIXED = (_END, _SAVE, _LOAD, _STEP_TIME, _NETWORK, _NCCL_VERSION, _LIGHTNING_WORLD, _MEGATRON_WORLD)

_NOTHING = Environment()
_NO_SAMPLES = Samples()
_ROUNDED = 0.006  # seconds: Megatron-Bridge tells a step's time twice, once with two digits behind the point
_MOST_RANKS = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """How far a growing log has been read, and all that is needed to go on from there; plain data by ``typed.to_data``.

    ``offset`` in bytes: where the first line begins that is not yet complete. ``opening`` and ``loads``: read since the
    last step, so perhaps of the next attempt. ``unnumbered``: steps of lines without a number; ``told``: seconds and
    TFLOPS that one of them told of a step that has a line of its own.
    """

    offset: int = 0
    samples: Samples = _NO_SAMPLES
    from_list: bool = False
    opening: Environment = _NOTHING
    loads: tuple[Checkpoint, ...] = ()
    unnumbered: tuple[Step, ...] = ()
    told: tuple[float, ...] = ()


class Collector:
    """The attempt that is being read; it goes on where ``state`` ended."""

    def __init__(self, spec: ParseSpec, state: ReadState) -> None:
        samples = state.samples
        self.formats = formats_of(spec)
        self.step_texts = {form.needle.text for form in self.formats}
        self.needles: Sequence[Needle] = [*dict.fromkeys(form.needle for form in self.formats), *_FIXED]
        self.steps, self.checkpoints = [*samples.steps], [*samples.checkpoints]
        self.last, self.attempts, self.ended = samples.last, samples.attempts, samples.ended
        self.framework = samples.framework
        self.gbs, self.peak_memory, self.environment = samples.gbs, samples.peak_memory, samples.environment
        self.opening, self.loads, self.from_list = state.opening, [*state.loads], state.from_list
        self.unnumbered, self.told = [*state.unnumbered], state.told

    def freeze(self, offset: int) -> ReadState:
        """The state at ``offset`` of the log."""
        return ReadState(
            offset=offset, samples=self._numbered(), from_list=self.from_list, opening=self.opening,
            loads=tuple(self.loads), unnumbered=tuple(self.unnumbered), told=self.told,
        )  # fmt: skip

    def samples(self) -> Samples:
        """What has been read so far."""
        found = replace(self._numbered(), environment=_merged(self.environment, self.opening))
        if self.steps:
            return found
        found = replace(found, checkpoints=(*self.loads, *self.checkpoints))
        if not self.unnumbered:
            return found
        steps = tuple(self.unnumbered)
        return replace(found, steps=steps, attempts=1, last=len(steps) - 1, framework=MEGATRON_NAME)

    def _numbered(self) -> Samples:
        return Samples(
            steps=tuple(self.steps), last=self.last, attempts=self.attempts, ended=self.ended,
            checkpoints=tuple(self.checkpoints), environment=self.environment, framework=self.framework, gbs=self.gbs,
            peak_memory=self.peak_memory,
        )  # fmt: skip

    def add(self, hit: Hit) -> None:
        """Take what the line of ``hit`` says."""
        text, line = hit.text, hit.line()
        if text in self.step_texts:
            self._add_step_line(hit, line)
        elif text == _END.text:
            self.ended = True
        elif text == _SAVE.text:
            self._add_checkpoint(self.checkpoints, "save", lines.read_checkpoint(line, b"Save duration"))
        elif text == _LOAD.text:
            self._add_checkpoint(self.loads, "load", lines.read_checkpoint(line, b"Time spent in load_checkpoint"))
        elif text == _STEP_TIME.text:
            self._add_step_time(lines.read_step_time(line))
        else:
            self.opening = _merged(self.opening, _environment(text, line))

    def _add_step_line(self, hit: Hit, line: Line) -> None:
        for form in self.formats:
            if form.needle.text == hit.text:
                found = lines.read_step(line, form, with_batch=self.gbs is None)
                if found is not None:
                    self._add_step(found, form)
                    return
        if not self.steps or self.from_list:
            self._add_list(lines.read_list(hit.block.behind(hit.at), hit.text))

    def _add_list(self, times: Sequence[float]) -> None:
        if times:
            self._begin()
            self.steps = [Step(iteration=number, step_time=seconds) for number, seconds in enumerate(times)]
            self.last, self.from_list = len(times) - 1, True
            self._take_opening()

    def _add_step(self, found: lines.StepLine, form: Format) -> None:
        step = self._with_told(found.step)
        if self.from_list or self._starts_anew(step, redrawn=form.redrawn):
            self._begin()
        self._take_opening()
        if self.steps and self.steps[-1].iteration == step.iteration:
            self.steps.pop()  # two ranks logged it, or a bar was drawn again
        self.steps.append(step)
        self.last, self.framework = found.last, form.name
        self.gbs = self.gbs or found.gbs
        if found.peak_memory is not None:
            self.peak_memory = max(self.peak_memory or 0, found.peak_memory)

    def _starts_anew(self, step: Step, *, redrawn: bool) -> bool:
        if not self.steps:
            return True
        previous = self.steps[-1]
        # An attempt may end after its first step, and the next begin with the same one.
        repeated = len(self.steps) == 1 and step.iteration == previous.iteration and step != previous
        return step.iteration < previous.iteration or (repeated and not redrawn)

    def _begin(self) -> None:
        """Forget the attempt before: what was read since its last step belongs to the new one."""
        self.attempts += 1
        self.steps, self.checkpoints, self.unnumbered = [], [], []
        self.environment, self.ended, self.from_list = _NOTHING, False, False
        self.gbs = self.peak_memory = None

    def _take_opening(self) -> None:
        if self.opening is not _NOTHING:
            self.environment, self.opening = _merged(self.environment, self.opening), _NOTHING
        if self.loads:
            self.checkpoints += self.loads
            self.loads = []

    def _add_step_time(self, found: tuple[float, float] | None) -> None:
        if found is None:
            return
        self.told = found
        if not self.steps:
            step = Step(iteration=len(self.unnumbered), step_time=found[0], tflops=found[1])
            self.unnumbered.append(step)
        else:
            self.steps[-1] = self._with_told(self.steps[-1])

    def _with_told(self, step: Step) -> Step:
        if step.tflops is not None or not self.told or abs(self.told[0] - step.step_time) > _ROUNDED:
            return step
        return replace(step, tflops=self.told[1])

    def _add_checkpoint(
        self, events: list[Checkpoint], kind: Literal["save", "load"], found: lines.CheckpointLine | None
    ) -> None:
        if found is None or not 0 <= found.rank < _MOST_RANKS:
            return
        event = events[-1] if events else None
        if event is None or event.kind != kind or event.iteration != found.iteration or found.rank in event.ranks:
            event = Checkpoint(kind=kind, ranks=(), max_seconds=found.seconds, iteration=found.iteration)
        else:
            events.pop()
        events.append(
            replace(
                event,
                ranks=(*event.ranks, found.rank),
                max_seconds=max(event.max_seconds, found.seconds),
                rank0_seconds=found.seconds if found.rank == 0 else event.rank0_seconds,
            )
        )


def _environment(text: bytes, line: Line) -> Environment:
    """What one line says of where the job runs."""
    if text == _NCCL_VERSION.text:
        return Environment(nccl_version=lines.read_nccl_version(line))
    if text != _NETWORK.text:
        return Environment(world_size=lines.read_world_size(line))
    if (found := lines.read_network(line)) is None:
        return _NOTHING
    network, host = found
    return Environment(networks=(network,), hosts=(host,) if host else ())


def _merged(earlier: Environment, later: Environment) -> Environment:
    if earlier == _NOTHING or later == _NOTHING:
        return later if earlier == _NOTHING else earlier
    return Environment(
        networks=_union(earlier.networks, later.networks),
        hosts=_union(earlier.hosts, later.hosts),
        nccl_version=later.nccl_version or earlier.nccl_version,
        world_size=later.world_size or earlier.world_size,
    )


def _union(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    return earlier if set(later) <= set(earlier) else tuple(dict.fromkeys((*earlier, *later)))
