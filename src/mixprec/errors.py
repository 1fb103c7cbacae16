"""Every error and warning that mixprec raises says what happened, with which value, what is accepted and what to do.

All errors derive from `MixprecError`, and each also derives from the built-in (or torch-compatible) type that
callers already catch. Errors carry their data as attributes.

```
MixprecError
├── InvalidValueError (ValueError)      an argument, setting or file entry outside what is accepted
│   ├── HalfGradientsError              float16 gradients, which cannot be unscaled in place; names the parameters
│   ├── UnknownNameError                a name that is not known, with suggestions
│   └── PolicySyntaxError               a policy's text form that does not parse
├── BannedOpError (RuntimeError)        an op that the active policy forbids; carries the replacement
├── LossScaleFloorError (RuntimeError)  the loss scale sat at its floor and gradients were still not finite
├── MisuseError (RuntimeError)          the protocol of scale, unscale, clip, step, update was broken
├── CheckpointError (RuntimeError)      a saved state that cannot be restored exactly
├── DisagreementError (RuntimeError)    ranks hold different values where they must agree
└── MissingExtraError (ImportError)     an optional dependency is not installed; names the extra

MixprecWarning (UserWarning)
└── MisuseWarning                       a misuse that may be intended; carries the cause's code
```
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BannedOpError",
    "CheckpointError",
    "DisagreementError",
    "HalfGradientsError",
    "InvalidValueError",
    "LossScaleFloorError",
    "MissingExtraError",
    "MisuseError",
    "MisuseWarning",
    "MixprecError",
    "MixprecWarning",
    "PolicySyntaxError",
    "UnknownNameError",
    "suggest",
]


def suggest(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The names in `known` that are closest to `name`, best first; empty when none is close."""
    return tuple(difflib.get_close_matches(name, list(known), n=limit, cutoff=0.6))


class MixprecError(Exception):
    """Base of every error that mixprec raises."""


class InvalidValueError(MixprecError, ValueError):
    """A value outside what is accepted.

    Attributes: `name` of the argument or key, the `value` given, and `accepted` in words.
    """

    def __init__(self, name: str, value: object, accepted: str, advice: str = "") -> None:
        self.name = name
        self.value = value
        self.accepted = accepted
        self.advice = advice
        text = f"{name} is {value!r}; accepted is {accepted}{'' if accepted.endswith('?') else '.'}"
        super().__init__(f"{text} {advice}" if advice else text)


class UnknownNameError(InvalidValueError):
    """A name that is not known. `suggestions` holds the closest known names, best first."""

    def __init__(self, kind: str, value: str, known: Iterable[str], advice: str = "") -> None:
        names = sorted(known)
        self.suggestions = suggest(value, names)
        if self.suggestions:
            accepted = "a known name; did you mean " + " or ".join(repr(s) for s in self.suggestions) + "?"
        elif len(names) <= 20:
            accepted = "one of " + ", ".join(names)
        else:
            accepted = f"one of {len(names)} known names"
        super().__init__(kind, value, accepted.rstrip("."), advice)


class HalfGradientsError(InvalidValueError):
    """Gradients are float16, where unscaling flushes small ones to zero. `parameters` are the names of their owners."""

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self.parameters = parameters
        shown = ", ".join(parameters[:5]) + (f" and {len(parameters) - 5} more" if len(parameters) > 5 else "")
        super().__init__("gradient dtype", "float16", "float32, bfloat16 or float64")
        self.args = (
            f"Attempting to unscale FP16 gradients. They belong to float16 parameters: {shown}. Either keep the "
            "parameters in float32 (model.float()) and let autocast cast them, or train float16 parameters with "
            "float32 master weights: Precision('fp16-master', ...).",
        )


class PolicySyntaxError(InvalidValueError):
    """A policy's text form does not parse. `line` is the 1-based line in that text."""

    def __init__(self, line: int, text: str, accepted: str) -> None:
        self.line = line
        super().__init__(f"line {line} of the policy", text, accepted)


class BannedOpError(MixprecError, RuntimeError):
    """The active policy forbids this op. `replacement` says what to write instead."""

    def __init__(self, op: str, reason: str, replacement: str) -> None:
        self.op = op
        self.reason = reason
        self.replacement = replacement
        super().__init__(f"{op} is banned by the active policy: {reason} Write instead: {replacement}")


class LossScaleFloorError(MixprecError, RuntimeError):
    """The loss scale sat at its floor and gradients were still not finite, `overflows` times in a row.

    Lowering the scale further cannot help: the values are not finite whatever the scale is.
    """

    def __init__(self, scale: float, overflows: int, advice: str) -> None:
        self.scale = scale
        self.overflows = overflows
        super().__init__(
            f"{overflows} consecutive steps had non-finite gradients with the loss scale at its floor of {scale:g}. "
            f"{advice}"
        )


class MisuseError(MixprecError, RuntimeError):
    """The protocol was broken. `code` is the cause (`mixprec explain CODE`), `subject` the parameter or call."""

    def __init__(self, code: str, subject: str, message: str) -> None:
        self.code = code
        self.subject = subject
        super().__init__(f"{message} [{code}]")


class CheckpointError(MixprecError, RuntimeError):
    """A saved state cannot be restored exactly. `key` is the entry at fault."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


class DisagreementError(MixprecError, RuntimeError):
    """Ranks hold different values where they must agree. `values` are in rank order."""

    def __init__(self, what: str, values: tuple[float, ...], advice: str) -> None:
        self.what = what
        self.values = values
        listed = ", ".join(f"rank {rank}: {value:g}" for rank, value in enumerate(values))
        super().__init__(f"{what} differs between ranks ({listed}). {advice}")


class MissingExtraError(MixprecError, ImportError):
    """An optional dependency is not installed. `extra` is what to install."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{what} needs the package {package!r}. Install it with: pip install 'mixprec[{extra}]'")


class MixprecWarning(UserWarning):
    """Base of every warning that mixprec issues."""


class MisuseWarning(MixprecWarning):
    """A misuse that may be intended. `code` is the cause, `subject` the parameter or call."""

    def __init__(self, code: str, subject: str, message: str) -> None:
        self.code = code
        self.subject = subject
        super().__init__(f"{message} [{code}]")
