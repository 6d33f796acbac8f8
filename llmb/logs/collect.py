# SPDX-License-Identifier: Apache-2.0
"""Puts the lines of a log together: which attempt they belong to, and what is known after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmb.logs import lines
from llmb.logs.conditions import LOAD, NOTHING, PLACES, SAVE, add_checkpoint, environment_of, merged
from llmb.logs.formats import MEGATRON_NAME, Format, formats_of
from llmb.logs.samples import Checkpoint, Environment, Samples, Step
from llmb.logs.scan import Hit, Line, Needle, needle
from llmb.logs.spec import ParseSpec

_END = needle("`Trainer.fit` stopped")
_STEP_TIME = needle("GPU utilization")
_FIXED = (_END, SAVE, LOAD, _STEP_TIME, *PLACES)

_NO_SAMPLES = Samples()
_ROUNDED = 0.006  # seconds: Megatron-Bridge tells a step's time twice, once with two digits behind the point


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """How far a growing log has been read, and all that is needed to go on from there; plain data by ``typed.to_data``.

    ``offset`` in bytes: where the first line begins that is not yet complete. ``opening`` and ``loads``: read since the
    last step, so perhaps of the next attempt. ``unnumbered``: steps of lines without a number; ``told``: seconds and
    TFLOPS that one of them told of a step that has a line of its own; ``rank``: who told the attempt's first step.
    """

    offset: int = 0
    samples: Samples = _NO_SAMPLES
    from_list: bool = False
    opening: Environment = NOTHING
    loads: tuple[Checkpoint, ...] = ()
    unnumbered: tuple[Step, ...] = ()
    told: tuple[float, ...] = ()
    rank: int | None = None


class Collector:
    """The attempt that is being read; it goes on where ``state`` ended."""

    def __init__(self, spec: ParseSpec, state: ReadState) -> None:
        samples = state.samples
        self.formats = formats_of(spec)
        self.step_texts = {form.needle.text for form in self.formats}
        self.needles: Sequence[Needle] = [*dict.fromkeys(form.needle for form in self.formats), *_FIXED]
        self.steps, self.checkpoints = [*samples.steps], [*samples.checkpoints]
        self.last, self.ended = samples.last, samples.ended
        self.attempts, self.begins = samples.attempts, samples.begins
        self.framework = samples.framework
        self.gbs, self.peak_memory, self.environment = samples.gbs, samples.peak_memory, samples.environment
        self.opening, self.loads, self.from_list = state.opening, [*state.loads], state.from_list
        self.unnumbered, self.told, self.rank = [*state.unnumbered], state.told, state.rank

    def freeze(self, offset: int) -> ReadState:
        """The state at ``offset`` of the log."""
        return ReadState(
            offset=offset, samples=self._numbered(), from_list=self.from_list, opening=self.opening,
            loads=tuple(self.loads), unnumbered=tuple(self.unnumbered), told=self.told,
            rank=self.rank,
        )  # fmt: skip

    def samples(self) -> Samples:
        """What has been read so far."""
        found = replace(self._numbered(), environment=merged(self.environment, self.opening))
        if self.steps:
            return found
        found = replace(found, checkpoints=(*self.loads, *self.checkpoints))
        if not self.unnumbered:
            return found
        steps = tuple(self.unnumbered)
        return replace(found, steps=steps, attempts=1, last=len(steps) - 1, framework=MEGATRON_NAME)

    def _numbered(self) -> Samples:
        return Samples(
            steps=tuple(self.steps), last=self.last, attempts=self.attempts, begins=self.begins, ended=self.ended,
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
        elif text == SAVE.text:
            add_checkpoint(self.checkpoints, "save", line)
        elif text == LOAD.text:
            add_checkpoint(self.loads, "load", line)
        elif text == _STEP_TIME.text:
            self._add_step_time(lines.read_step_time(line))
        else:
            self.opening = merged(self.opening, environment_of(text, line))

    def _add_step_line(self, hit: Hit, line: Line) -> None:
        at = hit.offset - len(line.before)
        for form in self.formats:
            if form.needle.text == hit.text:
                found = lines.read_step(line, form, with_batch=self.gbs is None)
                if found is not None:
                    self._add_step(found, line, at, form)
                    return
        if not self.steps or self.from_list:
            self._add_list(lines.read_list(hit.block.behind(hit.at), hit.text), at)

    def _add_list(self, times: Sequence[float], at: int) -> None:
        if times:
            self._begin(at)
            self.steps = [Step(iteration=number, step_time=seconds) for number, seconds in enumerate(times)]
            self.last, self.from_list = len(times) - 1, True
            self._take_opening()

    def _add_step(self, found: lines.StepLine, line: Line, at: int, form: Format) -> None:
        if self._told_by_another(found.step, line, form):
            return
        if self.from_list or self._starts_anew(found.step, redrawn=form.redrawn):
            self._begin(at)
            self.rank = lines.read_rank(line, form)
            found = lines.read_step(line, form) or found  # the batch was known, and perhaps of the attempt before
        self._take_opening()
        if self.steps and self.steps[-1].iteration == found.step.iteration:
            self.steps.pop()  # a bar was drawn again
        self.steps.append(self._with_told(found.step))
        self.last, self.framework = found.last, form.name
        self.gbs = self.gbs or found.gbs
        if found.peak_memory is not None:
            self.peak_memory = max(self.peak_memory or 0, found.peak_memory)

    def _told_by_another(self, step: Step, line: Line, form: Format) -> bool:
        """Whether another rank tells of a step that this attempt has: it may lag behind, and begins nothing anew."""
        if self.rank is None or not self.steps or step.iteration > self.steps[-1].iteration:
            return False
        return lines.read_rank(line, form) not in (None, self.rank)

    def _starts_anew(self, step: Step, *, redrawn: bool) -> bool:
        if not self.steps:
            return True
        previous = self.steps[-1]
        # An attempt may end after its first step, and the next begin with the same one.
        repeated = len(self.steps) == 1 and step.iteration == previous.iteration and step != previous
        return step.iteration < previous.iteration or (repeated and not redrawn)

    def _begin(self, at: int) -> None:
        """Forget the attempt before: what was read since its last step belongs to the new one, which begins ``at``."""
        self.begins = at if self.attempts else 0
        self.attempts += 1
        self.steps, self.checkpoints, self.unnumbered = [], [], []
        self.environment, self.ended, self.from_list = NOTHING, False, False
        self.gbs = self.peak_memory = None

    def _take_opening(self) -> None:
        if self.opening is not NOTHING:
            self.environment, self.opening = merged(self.environment, self.opening), NOTHING
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
        tflops, self.told = self.told[1], ()  # of this step alone: the next one takes about as long
        return replace(step, tflops=tflops)
