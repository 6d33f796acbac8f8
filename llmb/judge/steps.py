# SPDX-License-Identifier: Apache-2.0
"""What is unusual about single steps: those far from the median, and a drift. Pure."""

from collections.abc import Iterator, Sequence

from llmb.contract.metrics import LOWER, STEP_TIME, Measured
from llmb.judge.reference import metric_of, pool, relative
from llmb.judge.value import FAIL, WARN, ratio_in_digits, ratio_verdict
from llmb.measure.result import Result
from llmb.measure.statistics import Statistics

_WORTH_SAYING = 0.01  # a fraction of the step time
_MOST_NAMED = 4  # iterations


def step_notes(result: Result) -> Iterator[str]:
    """Yield anything unusual about the steps of the window."""
    steps, metric = result.metrics.statistics, result.metrics.metric_of_statistics
    verdict, mean = result.verdict, result.metrics.measured.get(metric)
    if steps is None or mean is None:
        return
    if steps.outliers:
        yield _outliers(steps, metric, mean)
    if abs(steps.drift) > _WORTH_SAYING:
        words = ("slower", "faster") if metric == STEP_TIME else ("worse", "better")
        word = words[(steps.drift < 0) == (mean.better == LOWER)]
        yield f"{100 * abs(steps.drift):.1f} % {word} from the first to the last of the window"
    reference = verdict.reference
    if (
        reference is None
        or verdict.ratio is None
        or steps.median <= 0
        or reference.metric != metric
    ):
        return
    by_median = relative(steps.median, reference.value, mean.better)
    if abs(by_median - verdict.ratio) > _WORTH_SAYING:
        yield f"by their median, the ratio would be {by_median:.4f}"


def _outliers(
    steps: Statistics, metric: str, mean: Measured, what: str = "", most: int | None = None
) -> str:
    """Return which steps are far from the median, at most ``most`` of them named.

    ``what`` they are, if the text around does not say that.
    """
    numbers = [*map(str, steps.outliers[:most])]
    more = ", ..." if len(numbers) < len(steps.outliers) else ""
    iterations = f"iteration{'s' * (len(steps.outliers) > 1)} {', '.join(numbers)}{more}"
    verb = "is" if len(steps.outliers) == 1 else "are"
    median = f"{steps.median:.4g} {mean.unit}".strip()
    share = " ".join(filter(None, (f"{len(steps.outliers)} of {steps.count}", what)))
    is_lower_better = metric == STEP_TIME or mean.better == LOWER
    worst = f"{steps.most if is_lower_better else steps.least:.4g} {mean.unit}".strip()
    return f"{share} {verb} far from the median of {median}: {iterations}; the worst is {worst}"


def slow_steps(repeats: Sequence[Result]) -> str:
    """Return the steps that make ``repeats`` slow, empty if their medians are slow as well.

    ``repeats`` are judged together.
    """
    verdict = repeats[0].verdict
    reference, ratio = verdict.reference, verdict.pooled_ratio
    stretches = [
        run.metrics.statistics
        for run in repeats
        if run.metrics.statistics is not None
        and reference is not None
        and run.metrics.metric_of_statistics == reference.metric
    ]
    if reference is None or ratio is None or len(stretches) < len(repeats):
        return ""
    uneven = [index for index, steps in enumerate(stretches) if steps.outliers]
    if not uneven or min(steps.median for steps in stretches) <= 0:
        return ""
    metric = metric_of(repeats[0], reference.metric)
    median = pool([steps.median for steps in stretches], reference.metric).mean
    by_median = relative(median, reference.value, metric.better)
    is_slow, is_slow_by_median = (
        ratio_verdict(value, None, metric) in (FAIL, WARN) for value in (ratio, by_median)
    )
    if not is_slow or is_slow_by_median:
        return ""
    worst = max(uneven, key=lambda index: len(stretches[index].outliers))
    run, steps = repeats[worst], stretches[worst]
    mean = run.metrics.measured[reference.metric]
    what = f"steps of run {run.identity.name}" if len(repeats) > 1 else "steps"
    text = _outliers(steps, reference.metric, mean, what, _MOST_NAMED)
    return f"{text} (by the median, the ratio would be {ratio_in_digits(by_median, metric)})"
