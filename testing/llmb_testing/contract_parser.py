# SPDX-License-Identifier: Apache-2.0
"""The contract tests of how a plugin reads logs: what a sample measures, and the same log damaged
in many ways.
"""

import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from llmb.check.log_trial import reader_for_log, result_of_trial
from llmb.contract.metrics import STEP_TIME
from llmb.contract.samples import Samples, Step
from llmb.contract.window import Window
from llmb.errors import Fault, LlmbError, PluginError, author_fault
from llmb.measure.log_reader import read_log
from llmb.measure.reader import LogReader
from llmb.measure.result import SUCCESS, Result
from llmb_testing.contract_support import fail, loaded, workload_of

_CUTS = 60  # lengths at which the sample is cut
_NOISE = b"[rank7] 2026-01-02 03:04:05 INFO dataloader: shard 17 of 99 opened\n"
_NUMBER = rb"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"


class ParserContract:
    """Subclass it with a sample log, and with what it measures."""

    #: The package that the entry point names.
    plugin: ClassVar[str]
    #: The mean of each metric over the window, with the relative ``tolerance``.
    expected: ClassVar[Mapping[str, float]]
    tolerance: ClassVar[float] = 1e-6
    #: The file, None for ``sample_log`` of workload.yaml.
    log: ClassVar[Path | None] = None
    #: Of the run, None for the size that this names, or the default.
    size: ClassVar[str | None] = None

    def test_the_sample_measures_what_is_expected(self) -> None:
        """The run of the sample succeeds, and each metric has the expected mean."""
        result = self._result(self._sample())
        measured = {name: metric.mean for name, metric in result.metrics.measured.items()}
        if result.status != SUCCESS or not result.metrics.has_figures:
            self._fail(f"the sample is {result.status}: {result.reason}; measured: {measured}")
        for name, value in self.expected.items():
            if not math.isclose(measured.get(name, math.nan), value, rel_tol=self.tolerance):
                found = measured.get(name, "nothing")
                hint = f"it measures {measured} in the window {result.metrics.window}"
                self._fail(f"{name} is {found}, not {value} as expected", hint)

    def test_an_empty_log(self, tmp_path: Path) -> None:
        """A log without a line measures nothing, and is no success."""
        result = self._read(b"", tmp_path)
        if result.status == SUCCESS or result.metrics.measured:
            self._fail(f"an empty log is {result.status} with {dict(result.metrics.measured)}")

    def test_a_missing_log(self, tmp_path: Path) -> None:
        """The log of a run that has just begun does not exist yet."""
        try:
            reader_for_log(
                workload_of(self.plugin),
                self._size(),
                tmp_path / "missing.out",
                loaded(self.plugin),
            )
        except PluginError as error:
            fail([author_fault(error, "a log that does not exist yet")])

    def test_a_log_that_still_grows(self, tmp_path: Path) -> None:
        """Cut anywhere, the sample has the same steps as far as it goes: half a number is no
        number.
        """
        content = self._sample().read_bytes()
        full = self._steps(content, tmp_path)
        for cut in sorted({len(content) * part // _CUTS for part in range(_CUTS)}):
            steps = self._steps(content[:cut], tmp_path)
            for step, full_step in zip(steps, full, strict=False):
                if not _is_part_of(step, full_step):
                    self._fail(
                        f"cut after {cut} bytes, a step is {step}; in the whole log it is {full_step}"
                    )
            if len(steps) > len(full):
                self._fail(
                    f"cut after {cut} bytes, the log has {len(steps)} steps; the whole log has"
                    f" {len(full)}"
                )

    def test_lines_that_end_as_on_windows(self, tmp_path: Path) -> None:
        """Lines that end with CR LF measure the same."""
        self._same(
            b"\r\n".join(self._sample().read_bytes().splitlines()) + b"\r\n", tmp_path, "with CR LF"
        )

    def test_lines_of_other_ranks(self, tmp_path: Path) -> None:
        """Lines of other ranks between the steps change nothing, even if they mention the headline
        metric.
        """
        sample = self._sample()
        reader, headline = self._reader(sample), self._result(sample).metrics.headline
        noise = _NOISE + b"".join(
            b"rank 7 of 8: so far " + key + b"=9.9\n" for key in _keys_of(reader, headline)
        )
        lines = sample.read_bytes().splitlines()
        self._same(
            b"".join(line + b"\n" + noise for line in lines), tmp_path, "with other lines between"
        )

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        """Lines of arbitrary bytes between the steps change nothing."""
        numbers = random.Random(17)
        garbage = [
            bytes(numbers.choice(b"\0\1\x1b\x80\xff\xfe~") for _ in range(40)) for _ in range(7)
        ]
        lines = self._sample().read_bytes().splitlines()
        mixed = b"".join(line + b"\n" + garbage[i % 7] + b"\n" for i, line in enumerate(lines))
        self._same(garbage[0] + b"\n" + mixed, tmp_path, "with lines of arbitrary bytes")
        self._read(bytes(numbers.randrange(256) for _ in range(4096)), tmp_path)

    def test_windows(self, tmp_path: Path) -> None:
        """A metric is the mean of the steps in the chosen window."""
        content = self._sample().read_bytes()
        steps = self._steps(content, tmp_path)
        first = self._samples(content, tmp_path).first
        headline = self._result(self._sample()).metrics.headline
        for low, high in {(0, len(steps) - 1), (len(steps) // 2, len(steps) - 1), (0, 0)}:
            window = Window(first=steps[low].iteration + first, last=steps[high].iteration + first)
            values = [_value(step, headline) for step in steps[low : high + 1]]
            value = self._read(content, tmp_path, window).metrics.value
            expected = math.fsum(values) / len(values)
            if value is not None and not math.isclose(value.mean, expected, rel_tol=1e-9):
                self._fail(
                    f"{headline} in the window {window} is {value.mean}; the mean of its steps is"
                    f" {expected}"
                )

    def test_a_value_that_is_no_number(self, tmp_path: Path) -> None:
        """With nan for the headline metric within the window, it is not measured, and the run is no
        success.
        """
        sample, result = self._sample(), self._result(self._sample())
        window, content = result.metrics.window, sample.read_bytes()
        damaged = _with_nan(content, self._reader(sample), result.metrics.headline)
        if damaged is None or window is None:
            pytest.skip(
                "the plugin reads the log by itself, so the test does not know where the number is"
            )
        found = self._read(damaged, tmp_path, window)
        value = found.metrics.value
        if value is not None:
            self._fail(f"with nan in the log, {found.metrics.headline} is {value.mean}")

    def _sample(self) -> Path:
        workload = workload_of(self.plugin)
        if self.log is not None:
            return self.log
        if workload.sample_log is None or workload.file is None:
            fail(
                [
                    Fault(
                        place=self.plugin,
                        message="no sample log",
                        hint="add `log = Path(...)` to the test class",
                    )
                ]
            )
        return workload.file.parent / workload.sample_log.file

    def _size(self) -> str | None:
        sample = workload_of(self.plugin).sample_log
        return self.size or (sample.size if sample is not None and self.log is None else None)

    def _reader(self, log: Path) -> LogReader:
        return reader_for_log(workload_of(self.plugin), self._size(), log, loaded(self.plugin))

    def _result(self, log: Path, window: Window | None = None) -> Result:
        return result_of_trial(
            workload_of(self.plugin), self._size(), log, loaded(self.plugin), window
        )

    def _write(self, content: bytes, folder: Path) -> Path:
        log = folder / self._sample().name
        log.write_bytes(content)
        return log

    def _read(self, content: bytes, folder: Path, window: Window | None = None) -> Result:
        """Return the result of a log with this content. Fails if the plugin does."""
        log = self._write(content, folder)
        try:
            return self._result(log, window)
        except LlmbError as error:
            fail([author_fault(error, f"a log of {len(content)} bytes")])

    def _samples(self, content: bytes, folder: Path) -> Samples:
        log = self._write(content, folder)
        try:
            return read_log(log, self._reader(log).spec)
        except LlmbError as error:
            fail([author_fault(error, f"a log of {len(content)} bytes")])

    def _steps(self, content: bytes, folder: Path) -> tuple[Step, ...]:
        return self._samples(content, folder).steps

    def _same(self, content: bytes, folder: Path, change: str) -> None:
        """Fail unless this content measures what the sample does. A plugin that reads by itself
        need only not fail.
        """
        result, sample = self._read(content, folder), self._result(self._sample())
        if (
            self._reader(self._sample()).spec.samples is None
            and result.metrics.measured != sample.metrics.measured
        ):
            measured = {name: metric.mean for name, metric in result.metrics.measured.items()}
            usual = {name: metric.mean for name, metric in sample.metrics.measured.items()}
            self._fail(
                f"{change}, the sample measures {measured}, not {usual}",
                "make the needle and the pattern narrower",
            )

    def _fail(self, message: str, hint: str | None = None) -> None:
        fail([Fault(place=str(self._sample()), message=message, hint=hint)])


def _value(step: Step, name: str) -> float:
    return step.step_time if name == STEP_TIME else step.values.get(name, math.nan)


def _is_part_of(step: Step, full_step: Step) -> bool:
    """Return True if ``step`` has only values of ``full_step``: a cut line may lack some."""
    same_time = math.isnan(step.step_time) or step.step_time == full_step.step_time
    return (
        step.iteration == full_step.iteration
        and same_time
        and step.values.items() <= full_step.values.items()
    )


def _keys_of(reader: LogReader, headline: str) -> list[bytes]:
    """Return the texts before the number of the headline metric."""
    keys = reader.spec.keys.get(headline) or (headline if headline in reader.spec.metrics else "")
    return [key.encode() for key in keys.split("|") if key]


def _without_numbers(content: bytes, pattern: re.Pattern[bytes]) -> bytes:
    """Return the content with nan for each value that the pattern finds."""

    def nan(match: re.Match[bytes]) -> bytes:
        start, end = (place - match.start() for place in match.span("value"))
        return match[0][:start] + b"nan" + match[0][end:]

    return pattern.sub(nan, content)


def _with_nan(content: bytes, reader: LogReader, headline: str) -> bytes | None:
    """Return the log with nan for each number of the headline metric, or None without its place."""
    spec = reader.spec
    if spec.samples is not None:
        return None
    if headline in spec.patterns:
        return _without_numbers(content, re.compile(spec.patterns[headline].encode()))
    for key in _keys_of(reader, headline):
        pattern = rb"(" + re.escape(key) + rb"\s*[:=]\s*)" + _NUMBER
        damaged, count = re.subn(pattern, rb"\g<1>nan", content)
        if count:
            return damaged
    return None
