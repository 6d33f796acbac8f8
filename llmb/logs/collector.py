# SPDX-License-Identifier: Apache-2.0
"""Collects the steps of a log's last attempt, line by line: attempts, ranks and progress bars print steps again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmb.logs import conditions, lines
from llmb.logs.conditions import LOAD, MEGATRON_CHECKPOINTS, NOTHING, PLACES, SAVE, merged
from llmb.logs.formats import BRIDGE_NAME, MEANS, MEGATRON_NAME, MEGATRONS, TRAINER_NAME, Format, ParseSpec, formats_of
from llmb.logs.lines import NoNumberError
from llmb.logs.samples import CheckpointEvent, Environment, Samples, Step
from llmb.logs.scan import Hit, Line, Needle, needle

_END = needle("`Trainer.fit` stopped")
_STEP_TIME = needle("GPU utilization")
_FIXED = (_END, SAVE, LOAD, _STEP_TIME, *MEGATRON_CHECKPOINTS, *PLACES)
_MEGATRON_TEXTS = frozenset(one.text for one in MEGATRON_CHECKPOINTS)
_NO_SAMPLES = Samples()
_ROUNDED = 0.006  # seconds: Megatron-Bridge prints a step's time twice, once with two decimals
_APART = 64  # steps: how far apart the two lines of one step may be, which two ranks print


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """How far a growing log has been read, and all that reading needs to continue; plain data by ``typed.to_data``.

    ``offset`` in bytes: where the first incomplete line begins. ``opening`` and ``loads``: read since the last step,
    so they may belong to the next attempt. ``unnumbered``: steps of lines without a number; ``step_times``: pairs of
    seconds and TFLOPS from lines whose step has not been read yet; ``rank``: which rank printed the attempt's first
    step.
    """

    offset: int = 0
    samples: Samples = _NO_SAMPLES
    from_list: bool = False
    opening: Environment = NOTHING
    loads: tuple[CheckpointEvent, ...] = ()
    unnumbered: tuple[Step, ...] = ()
    step_times: tuple[float, ...] = ()
    rank: int | None = None


class Collector:
    """Puts the lines of one attempt together, continuing from ``state``."""

    def __init__(self, spec: ParseSpec, state: ReadState) -> None:
        samples = state.samples
        self.formats = formats_of(spec)
        self.step_texts = {form.needle.text for form in self.formats}
        known = (lines.SUMMARY,) if len(self.formats) > 1 else ()
        self.needles: Sequence[Needle] = [*dict.fromkeys(form.needle for form in self.formats), *known, *_FIXED]
        self.steps, self.checkpoints = [*samples.steps], [*samples.checkpoints]
        self.last, self.first, self.ended = samples.last, samples.first, samples.ended
        self.attempts, self.begins = samples.attempts, samples.begins
        self.framework = samples.framework
        self.gbs, self.peak_memory, self.environment = samples.gbs, samples.peak_memory, samples.environment
        self.opening, self.loads, self.from_list = state.opening, [*state.loads], state.from_list
        self.unnumbered, self.rank = [*state.unnumbered], state.rank
        self.misread: NoNumberError | None = None
        self.step_times = list(zip(state.step_times[::2], state.step_times[1::2], strict=True))

    def freeze(self, offset: int) -> ReadState:
        return ReadState(
            offset=offset,
            samples=self._numbered(),
            from_list=self.from_list,
            opening=self.opening,
            loads=tuple(self.loads),
            unnumbered=tuple(self.unnumbered),
            step_times=tuple(value for pair in self.step_times for value in pair),
            rank=self.rank,
        )

    def samples(self) -> Samples:
        """What has been read so far."""
        found = replace(self._numbered(), environment=merged(self.environment, self.opening))
        if self.steps and self.framework in MEANS:
            resumed = any(one.kind == "load" for one in self.checkpoints)
            return replace(found, steps=_with_spans(found.steps, resumed=resumed))
        if self.steps:
            return found
        found = replace(found, checkpoints=(*self.loads, *self.checkpoints))
        if not self.unnumbered:
            return found
        steps = tuple(self.unnumbered)
        return replace(found, steps=steps, attempts=1, last=len(steps) - 1, first=1, framework=BRIDGE_NAME)

    def _numbered(self) -> Samples:
        return Samples(
            steps=tuple(self.steps),
            last=self.last,
            first=self.first,
            attempts=self.attempts,
            begins=self.begins,
            ended=self.ended,
            checkpoints=tuple(self.checkpoints),
            environment=self.environment,
            framework=self.framework,
            gbs=self.gbs,
            peak_memory=self.peak_memory,
        )

    def add(self, hit: Hit) -> None:
        """Add what the line of ``hit`` says."""
        text, line = hit.text, hit.block.line(hit.at)
        if text in self.step_texts:
            self._add_step_line(hit, line)
        elif text == _END.text:
            self.ended = True
        elif text == SAVE.text:
            conditions.add_checkpoint(self.checkpoints, "save", line)
        elif text == LOAD.text:
            conditions.add_checkpoint(self.loads, "load", line)
        elif text in _MEGATRON_TEXTS:
            conditions.add_megatron_checkpoint(self.checkpoints, self.loads, text, line)
        elif text == lines.SUMMARY.text:
            self._add_summary(lines.read_summary(line), hit.offset - len(line.before))
        elif text == _STEP_TIME.text:
            self._add_step_time(lines.read_step_time(line))
        else:
            self.opening = merged(self.opening, conditions.environment_of(text, line))

    def _add_step_line(self, hit: Hit, line: Line) -> None:
        at = hit.offset - len(line.before)
        for form in self.formats:
            if form.needle.text == hit.text:
                found = self._read_step(line, form)
                if found is not None:
                    self._add_step(found, line, at, form)
                    return
        if not self.steps or self.from_list:
            self._add_list(lines.read_list(hit.block.behind(hit.at), hit.text), at)

    def _read_step(self, line: Line, form: Format) -> lines.StepLine | None:
        """The step of a line; None where it has none, or where what a plugin's pattern takes for its number is none."""
        try:
            return lines.read_step(line, form, with_batch=self.gbs is None)
        except NoNumberError as error:
            self.misread = self.misread or error
            return None

    def _add_list(self, times: Sequence[float], at: int) -> None:
        if times:
            self._begin(at)
            self.steps = [Step(iteration=number, step_time=seconds) for number, seconds in enumerate(times)]
            self.last, self.from_list = len(times) - 1, True
            self._take_opening()

    def _add_step(self, found: lines.StepLine, line: Line, at: int, form: Format) -> None:
        if self._is_of_another_rank(found.step, line, form):
            return
        if self._add_values(found, form):
            return
        if self.from_list or self._starts_anew(found.step, redrawn=form.redrawn):
            self._begin(at)
            self.rank = lines.read_rank(line, form)
            found = lines.read_step(line, form) or found  # the known batch may be that of the attempt before
        self._take_opening()
        if self.steps and self.steps[-1].iteration == found.step.iteration:
            self.steps.pop()  # a progress bar was drawn again
        self.steps.append(self._with_tflops(found.step))
        announced = self.environment.steps  # by the trainer, before its first step
        self.last = found.last if found.last is not None or announced is None else announced - 1
        self.first = form.window_from
        if form.name != MEGATRON_NAME or self.framework != BRIDGE_NAME:
            self.framework = form.name
        self.gbs = self.gbs or found.gbs or self.environment.gbs
        if found.peak_memory is not None:
            self.peak_memory = max(self.peak_memory or 0, found.peak_memory)

    def _add_values(self, found: lines.StepLine, form: Format) -> bool:
        """Add further metrics of the step that was read last, from a line of its own; False for any other line."""
        before = self.steps[-1] if self.steps else None
        if before is None or self.from_list or before.iteration != found.step.iteration:
            return False
        if not form.declared and not before.values:
            return False
        joined = _joined(before, found.step)
        if joined is not None:
            self.steps[-1] = joined
        return joined is not None

    def _add_summary(self, found: tuple[Step, int | None] | None, at: int) -> None:
        """Add a run whose log has no line for each step, as one step that is the mean of all."""
        if found is None or any(step.span == 1 for step in self.steps):
            return
        self._begin(at)
        self._take_opening()
        step, self.gbs = found
        self.steps, self.last, self.first = [step], step.iteration, 0
        self.framework, self.ended = TRAINER_NAME, True

    def _is_of_another_rank(self, step: Step, line: Line, form: Format) -> bool:
        """Whether another rank prints a step that this attempt already has: it may lag behind."""
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
        """Add seconds and TFLOPS without a number to the first step of that length that lacks TFLOPS, or keep them."""
        if found is None:
            return
        if self.framework in (None, *MEGATRONS):
            self.framework = BRIDGE_NAME  # Megatron-LM has no such line
        if not self.steps:
            self.unnumbered.append(Step(iteration=len(self.unnumbered), step_time=found[0], tflops=found[1]))
        for at in range(max(0, len(self.steps) - _APART), len(self.steps)):
            if _matches(self.steps[at], found):
                self.steps[at] = replace(self.steps[at], tflops=found[1])
                return
        self.step_times = [*self.step_times[1 - _APART :], found]

    def _with_tflops(self, step: Step) -> Step:
        """The step with the TFLOPS of an earlier line without a number, which are used once."""
        found = next((pair for pair in self.step_times if _matches(step, pair)), None)
        if found is None:
            return step
        self.step_times.remove(found)
        return replace(step, tflops=found[1])


def _matches(step: Step, found: tuple[float, float]) -> bool:
    return step.tflops is None and abs(found[0] - step.step_time) <= _ROUNDED


def _joined(first: Step, second: Step) -> Step | None:
    """One step from two lines of it; None where both have the same value, so that the second is another step."""
    if first.values.keys() & second.values.keys() or not (math.isnan(first.step_time) or math.isnan(second.step_time)):
        return None
    main, other = (second, first) if math.isnan(first.step_time) else (first, second)
    return replace(main, values={**other.values, **main.values})


def _with_spans(steps: tuple[Step, ...], *, resumed: bool) -> tuple[Step, ...]:
    """The steps of a program that prints each ``interval``-th one: each is the mean of all since the line before.

    The interval divides every printed number but 1, which some programs print as well. Where a line is missing, the
    iterations before it stay uncovered. The only line of a ``resumed`` run is one step.
    """
    interval = math.gcd(*(step.iteration + 1 for step in steps if step.iteration))
    if interval < 2 or (resumed and len(steps) == 1):
        return steps
    before = -1
    found = []
    for step in steps:
        found.append(replace(step, span=min(interval, step.iteration - before)))
        before = step.iteration
    return tuple(found)
