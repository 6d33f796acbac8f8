# SPDX-License-Identifier: Apache-2.0
"""Collect the steps of a log's last attempt: attempts, ranks and progress bars repeat steps."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from llmb.contract.formats import (
    BRIDGE_NAME,
    MEANS,
    MEGATRON_NAME,
    MEGATRONS,
    NEMO2_NAME,
    TRAINER_NAME,
    Format,
    ParseSpec,
    formats_of,
)
from llmb.contract.samples import CheckpointEvent, Environment, Samples, Step
from llmb.core.scan import Hit, Line, Needle, needle
from llmb.core.values import dataclass
from llmb.measure import (
    json_lines,
    log_conditions,
    log_lines,
    mlperf,
    nccl_links,
    nccl_tests,
    stragglers,
)
from llmb.measure.log_conditions import LOAD, MEGATRON_CHECKPOINTS, NOTHING, PLACES, SAVE, merged
from llmb.measure.log_lines import NoNumberError

_END = needle("`Trainer.fit` stopped")
_STEP_TIME = needle("GPU utilization")
_FIXED = (_END, SAVE, LOAD, _STEP_TIME, *MEGATRON_CHECKPOINTS, *PLACES)
_MEGATRON_TEXTS = frozenset(needle_.text for needle_ in MEGATRON_CHECKPOINTS)
_TRAINER = (log_lines.SUMMARY, log_lines.TRAINER_STEPS, log_lines.GRADIENT)
_HEADING = (nccl_tests.DEVICE, nccl_tests.START)
_HEADING_TEXTS = frozenset(needle_.text for needle_ in _HEADING)
_STRAGGLER_TEXTS = frozenset(needle_.text for needle_ in stragglers.NEEDLES)
_NO_SAMPLES = Samples()
_ROUNDED = 0.006  # seconds: Megatron-Bridge prints a step's time twice, once with two decimals
_MOST_INTERVAL = 1000  # steps: a single line with a higher number is of a run that has gone on
_SAME_RUN = 0.01  # a fraction: how far apart the times of one run are, which each rank takes
_MOST_LINKS = 32  # ranks whose lines of NCCL are read
_MOST_SAMPLES = 1e12  # in a batch
_APART = 64  # steps: how far apart the two lines of one step may be, which two ranks print


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """Everything that is needed to continue reading a growing log, as plain data."""

    offset: int = 0  #: bytes, of the first incomplete line
    samples: Samples = _NO_SAMPLES
    from_list: bool = False
    opening: Environment = NOTHING  #: since the last step, so it may be the next attempt's
    loads: tuple[CheckpointEvent, ...] = ()  #: since the last step, too
    unnumbered: tuple[Step, ...] = ()  #: steps of lines without a number
    #: Pairs of seconds and TFLOPS from lines whose step has not been read yet.
    step_times: tuple[float, ...] = ()
    rank: int | None = None  #: the rank that printed the attempt's first step
    epoch: int | None = None  #: of the last step
    before: int = 0  #: steps in the epochs before this one
    nan_gradient: bool = False  #: in a line of a program that logs no times of steps


class Collector:
    """Collects the lines of one attempt, continuing from ``state``."""

    def __init__(self, spec: ParseSpec, state: ReadState) -> None:
        samples = state.samples
        self.formats = formats_of(spec)
        self.step_texts = {form.needle.text for form in self.formats}
        summary = (
            (*_TRAINER, mlperf.EVENT, nccl_tests.TABLE, *_HEADING) if len(self.formats) > 1 else ()
        )
        self.needles: Sequence[Needle] = [
            *dict.fromkeys(form.needle for form in self.formats),
            *summary,
            *_FIXED,
            *stragglers.NEEDLES,
        ]
        self.steps, self.checkpoints = [*samples.steps], [*samples.checkpoints]
        self.offsets = dict(samples.offsets)
        self.last, self.first, self.ended = samples.last, samples.first, samples.ended
        self.attempts, self.begins = samples.attempts, samples.begins
        self.resumed = [*samples.resumed]
        self.framework = samples.framework
        self.gbs, self.peak_memory, self.environment = (
            samples.gbs,
            samples.peak_memory,
            samples.environment,
        )
        self.batches = [*samples.batches]
        self.mlperf, self.nccl_table = samples.mlperf, samples.nccl_table
        self.opening, self.loads, self.from_list = state.opening, [*state.loads], state.from_list
        self.unnumbered, self.rank = [*state.unnumbered], state.rank
        self.epoch, self.before = state.epoch, state.before
        self.nan_gradient = state.nan_gradient
        self.links_read = 0
        #: The first line with a plugin's needle that is no step.
        self.unread: tuple[Line, Format] | None = None
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
            epoch=self.epoch,
            before=self.before,
            nan_gradient=self.nan_gradient,
        )

    def samples(self) -> Samples:
        """Return the samples that were read so far."""
        samples = replace(self._numbered(), environment=merged(self.environment, self.opening))
        if self.steps:
            return replace(samples, steps=self._with_spans(has_ended=self.ended))
        samples = replace(
            samples, checkpoints=(*self.loads, *self.checkpoints), unread=self._why_unread()
        )
        if not self.unnumbered:
            return samples
        steps = tuple(self.unnumbered)
        return replace(
            samples, steps=steps, attempts=1, last=len(steps) - 1, first=1, framework=BRIDGE_NAME
        )

    def _with_spans(self, *, has_ended: bool) -> tuple[Step, ...]:
        """Return the steps of this attempt, each with the number of steps that it measures."""
        if self.framework in MEANS:
            resumed = any(event.kind == "load" for event in self.checkpoints)
            return _with_spans(tuple(self.steps), resumed=resumed)
        is_sample = has_ended and self.framework == NEMO2_NAME
        return _sampled(tuple(self.steps)) if is_sample else tuple(self.steps)

    def _why_unread(self) -> str:
        if self.unread is None:
            return ""
        line, form = self.unread
        if form.json_names is not None:
            return json_lines.why_no_step(line, form)
        return log_lines.why_no_step(line, form)

    def _numbered(self) -> Samples:
        return Samples(
            steps=tuple(self.steps),
            last=self.last,
            first=self.first,
            attempts=self.attempts,
            resumed=tuple(self.resumed),
            begins=self.begins,
            ended=self.ended,
            checkpoints=tuple(self.checkpoints),
            environment=self.environment,
            framework=self.framework,
            gbs=self.gbs,
            batches=tuple(self.batches),
            peak_memory=self.peak_memory,
            mlperf=self.mlperf,
            nccl_table=self.nccl_table,
            offsets=tuple(self.offsets.items()),
        )

    def add(self, hit: Hit) -> None:
        """Add the content of the line of ``hit``."""
        text, line = hit.text, hit.block.line(hit.at)
        if text in self.step_texts:
            self._add_step_line(hit, line)
        elif text == _END.text:
            self.ended = b"max_time" not in line.after
        elif text == SAVE.text:
            log_conditions.add_checkpoint(self.checkpoints, "save", line)
        elif text == LOAD.text:
            log_conditions.add_checkpoint(self.loads, "load", line)
        elif text in _MEGATRON_TEXTS:
            log_conditions.add_megatron_checkpoint(self.checkpoints, self.loads, text, line)
        elif text == log_lines.SUMMARY.text:
            self._add_summary(
                log_lines.read_summary(hit, self.opening), hit.offset - len(line.before)
            )
        elif text == log_lines.TRAINER_STEPS.text:
            self.opening = merged(self.opening, log_lines.read_trainer_steps(hit))
        elif text == log_lines.GRADIENT.text:
            self.nan_gradient = self.nan_gradient or log_lines.is_nan_gradient(line)
        elif text == nccl_tests.TABLE.text and text not in line.before:
            self.nccl_table = nccl_tests.table_at(hit)
        elif text in _HEADING_TEXTS:
            self.opening = merged(self.opening, nccl_tests.environment_of(text, line))
        elif text == mlperf.EVENT.text:
            self.mlperf = mlperf.with_event(self.mlperf, line)
        elif text in _STRAGGLER_TEXTS:
            environment = Environment(stragglers=stragglers.stragglers_at(hit))
            self.opening = merged(self.opening, environment)
        elif text == _STEP_TIME.text:
            self._add_step_time(log_lines.read_step_time(line))
        else:
            self.opening = merged(self.opening, log_conditions.environment_of(text, line))
            if text == log_conditions.NETWORK.text:
                self._add_links(hit)

    def _add_links(self, hit: Hit) -> None:
        """Add what the lines around NCCL's ``hit`` show, until all is known: every rank has one."""
        links = self.opening.links
        if self.links_read < _MOST_LINKS and None in (links.nodes, links.nvls, links.nic_gbit):
            self.links_read += 1
            links = nccl_links.links_at(hit)
            self.opening = merged(self.opening, Environment(links=links))

    def _add_step_line(self, hit: Hit, line: Line) -> None:
        at = hit.offset - len(line.before)
        for form in self.formats:
            if form.needle.text == hit.text:
                line = log_lines.with_following(hit, line, form)
                step_line = self._read_step(line, form)
                if step_line is not None:
                    self._add_step(step_line, line, at, form)
                    return
                if form.own and self.unread is None and not self.steps:
                    self.unread = line, form
        if not self.steps or self.from_list:
            self._add_list(log_lines.read_list(hit.block.behind(hit.at), hit.text), at)

    def _read_step(self, line: Line, form: Format) -> log_lines.StepLine | None:
        """Return the step of a line, or None, also if a plugin's pattern matches no number."""
        if form.json_names is not None:
            return json_lines.read_step(line, form)
        try:
            return log_lines.read_step(line, form, first_batch=self.gbs is None)
        except NoNumberError as error:
            self.misread = self.misread or error
            return None

    def _add_list(self, times: Sequence[float], at: int) -> None:
        if times:
            self._begin(at)
            self.steps = [
                Step(iteration=number, step_time=seconds) for number, seconds in enumerate(times)
            ]
            self.last, self.from_list = len(times) - 1, True
            self._take_opening()

    def _add_step(self, step_line: log_lines.StepLine, line: Line, at: int, form: Format) -> None:
        if not self._is_next(step_line.step):
            step_line = self._counted_on(step_line, line)
            if self._is_of_another_rank(step_line.step, line, form):
                return
            if self._add_values(step_line, form):
                return
            if self.from_list or self._starts_anew(step_line.step, redrawn=form.redrawn):
                self._begin(at, step_line.step.iteration)
                self.rank = log_lines.read_rank(line, form)
                # the known batch may be that of the attempt before
                step_line = self._read_step(line, form) or step_line
                self.epoch, self.before = log_lines.read_epoch(line), 0
            if self.steps and self.steps[-1].iteration == step_line.step.iteration:
                self.steps.pop()  # a progress bar was drawn again
        self._take_opening()
        step = self._with_tflops(step_line.step) if self.step_times else step_line.step
        self.steps.append(step)
        self.offsets[step.iteration] = at
        announced = self.environment.steps  # by the trainer, before its first step
        self.last = (
            step_line.last if step_line.last is not None or announced is None else announced - 1
        )
        self.first = form.window_from
        if form.name != MEGATRON_NAME or self.framework != BRIDGE_NAME:
            self.framework = form.name
        batch = step_line.gbs
        if batch is not None and batch != self.gbs and _is_count(batch):
            self.gbs = int(batch)
            self.batches.append((step.iteration, self.gbs))
        elif self.gbs is None:
            self.gbs = self.environment.gbs
        if step_line.peak_memory is not None:
            self.peak_memory = max(self.peak_memory or 0, step_line.peak_memory)

    def _is_next(self, step: Step) -> bool:
        """Return True for the next step of an attempt in its first epoch, as almost all are."""
        if not self.steps or self.before or self.from_list:
            return False
        return step.iteration > self.steps[-1].iteration

    def _counted_on(self, step_line: log_lines.StepLine, line: Line) -> log_lines.StepLine:
        """Return the step with the number that it has in all epochs together.

        A program that begins each epoch with 0 again also prints the epoch's number.
        """
        step, last = step_line.step, step_line.last
        if self.steps and step.iteration + self.before < self.steps[-1].iteration:
            epoch = log_lines.read_epoch(line)
            if epoch is not None and self.epoch is not None and epoch > self.epoch:
                self.epoch, self.before = epoch, self.steps[-1].iteration + 1
        if not self.before or log_lines.read_epoch(line) != self.epoch:
            return step_line
        step = replace(step, iteration=step.iteration + self.before)
        return step_line._replace(step=step, last=None if last is None else last + self.before)

    def _add_values(self, step_line: log_lines.StepLine, form: Format) -> bool:
        """Add metrics of the last step from a line of their own. False for any other line."""
        before = self.steps[-1] if self.steps else None
        if before is None or self.from_list or before.iteration != step_line.step.iteration:
            return False
        if not form.declared and not before.values:
            return False
        joined = _joined(before, step_line.step)
        if joined is not None:
            self.steps[-1] = joined
        return joined is not None

    def _add_summary(self, summary: tuple[Step, int | None] | None, at: int) -> None:
        """Add a run whose log has no line for each step, as one step that is the mean of all."""
        if summary is None or any(step.span == 1 for step in self.steps):
            return
        if self.framework == TRAINER_NAME and _is_same_run(self.steps, summary[0]):
            return  # each rank may print it
        self._begin(at)
        self._take_opening()
        step, self.gbs = summary
        if self.nan_gradient:
            step = replace(step, grad_norm=math.nan)
        self.steps, self.last, self.first = [step], step.iteration, 0
        self.framework, self.ended = TRAINER_NAME, True

    def _is_of_another_rank(self, step: Step, line: Line, form: Format) -> bool:
        """Return True if a rank that lags behind prints a step that this attempt has."""
        if self.rank is None or not self.steps or step.iteration > self.steps[-1].iteration:
            return False
        return log_lines.read_rank(line, form) not in (None, self.rank)

    def _starts_anew(self, step: Step, *, redrawn: bool) -> bool:
        if not self.steps:
            return True
        previous = self.steps[-1]
        # An attempt may end after its first step, and the next begin with the same one.
        repeated = (
            len(self.steps) == 1 and step.iteration == previous.iteration and step != previous
        )
        return step.iteration < previous.iteration or (repeated and not redrawn)

    def _begin(self, at: int, first: int = 0) -> None:
        """Begin an attempt ``at`` an offset: anything read since the last step belongs to it.

        Steps before its ``first`` one are not trained again, since it loads their checkpoint.
        """
        before = (*self.resumed, *self._with_spans(has_ended=True))
        self.resumed = [step for step in before if step.iteration < first]
        self.begins = at if self.attempts else 0
        self.attempts += 1
        self.steps, self.checkpoints, self.unnumbered = [], [], []
        self.offsets = {}
        self.environment, self.ended, self.from_list = NOTHING, False, False
        self.gbs = self.peak_memory = None
        self.batches = []

    def _take_opening(self) -> None:
        if self.opening is not NOTHING:
            self.environment, self.opening = merged(self.environment, self.opening), NOTHING
        if self.loads:
            self.checkpoints += self.loads
            self.loads = []

    def _add_step_time(self, pair: tuple[float, float] | None) -> None:
        """Add seconds and TFLOPS to the first step of that length without TFLOPS, or keep them."""
        if pair is None:
            return
        if self.framework in (None, *MEGATRONS):
            self.framework = BRIDGE_NAME  # Megatron-LM has no such line
        if not self.steps:
            self.unnumbered.append(
                Step(iteration=len(self.unnumbered), step_time=pair[0], tflops=pair[1])
            )
        for at in range(max(0, len(self.steps) - _APART), len(self.steps)):
            if _matches(self.steps[at], pair):
                self.steps[at] = replace(self.steps[at], tflops=pair[1])
                return
        self.step_times = [*self.step_times[1 - _APART :], pair]

    def _with_tflops(self, step: Step) -> Step:
        """Return the step with the TFLOPS of an earlier line without a number, used once."""
        matched = next((pair for pair in self.step_times if _matches(step, pair)), None)
        if matched is None:
            return step
        self.step_times.remove(matched)
        return replace(step, tflops=matched[1])


def _is_count(batch: float) -> bool:
    return 0 < batch < _MOST_SAMPLES and batch == int(batch)


def _matches(step: Step, pair: tuple[float, float]) -> bool:
    return step.tflops is None and abs(pair[0] - step.step_time) <= _ROUNDED


def _joined(first: Step, second: Step) -> Step | None:
    """Return one step from two lines of it, or None if the second is another step.

    It is another step if both have the same value.
    """
    if first.values.keys() & second.values.keys() or not (
        math.isnan(first.step_time) or math.isnan(second.step_time)
    ):
        return None
    main, second_line = (second, first) if math.isnan(first.step_time) else (first, second)
    return replace(main, values={**second_line.values, **main.values})


def _with_spans(steps: tuple[Step, ...], *, resumed: bool) -> tuple[Step, ...]:
    """Return the steps of a program that prints every ``interval``-th one, each the mean since.

    The interval divides every printed number but 1, which some programs print as well. If a line is
    missing, the iterations before it stay uncovered. The only line of a ``resumed`` run is one
    step, and so is the only line of a run whose number is too high for an interval.
    """
    interval = math.gcd(*(step.iteration + 1 for step in steps if step.iteration))
    if interval < 2 or (len(steps) == 1 and (resumed or interval > _MOST_INTERVAL)):
        return steps
    before = -1
    spans = []
    for step in steps:
        spans.append(replace(step, span=min(interval, step.iteration - before)))
        before = step.iteration
    return tuple(spans)


def _sampled(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a program that prints every n-th one, each in place of those before it.

    They are unchanged unless the log has three at least, and all are equally far apart.
    """
    apart = {after.iteration - before.iteration for before, after in itertools.pairwise(steps)}
    interval = min(apart, default=1)
    if len(steps) < 3 or len(apart) > 1 or interval < 2:
        return steps
    return tuple(replace(step, span=min(interval, step.iteration + 1)) for step in steps)


def _is_same_run(steps: Sequence[Step], summary: Step) -> bool:
    """Return True if another rank has printed the same run's ``summary``, so as many steps."""
    return any(
        step.span == summary.span and abs(step.step_time / summary.step_time - 1) < _SAME_RUN
        for step in steps
    )
