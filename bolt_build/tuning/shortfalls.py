"""What is said where measuring ended before it had all, or found nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.errors import Diagnostic
from bolt_build.tuning.lanes.measuring import Ended
from bolt_build.tuning.records.counting import Measurement
from bolt_build.tuning.trials.tuning_set import ProblemTrials


def nothing_measured(name: str, measurements: Sequence[Measurement]) -> Diagnostic:
    """No problem of the engine `name` has a kernel with a time. Where there are `measurements`, all kernels failed."""
    measure = "measure where the GPU is: tune there, or --export a bundle here and --import its results.jsonl"
    message = f"no record says how fast any kernel of {name} is"
    return Diagnostic("nothing-measured", message, hint=None if measurements else measure)


def unmeasured_problems(name: str, missing: Sequence[ProblemTrials]) -> Diagnostic:
    """Of some problems no kernel was measured."""
    places = ", ".join(problem.occurs[0] for problem in missing[:3]) + (", ..." if len(missing) > 3 else "")
    message = f"no kernel was measured for {len(missing)} of the problems, so the predicted one stays: {places}"
    hint = "tune again: what is measured stays, and tuning.budget says how long measuring may take"
    return Diagnostic("not-measured", message, hint=hint, subject=name, severity="warning")


def ended_early(ended: Ended, severity: str = "error") -> Diagnostic:
    """The driver failed, or GPUs were lost."""
    if ended.failed is not None:
        message = f"the driver ended with status {ended.failed.status}: {ended.failed.last_words}"
        return Diagnostic("measuring-failed", message, severity=severity)
    message = f"{ended.left} were not measured: {'; '.join(dict.fromkeys(ended.lost))}"
    return Diagnostic("gpus-lost", message, hint="tune again: what was measured stays", severity=severity)
