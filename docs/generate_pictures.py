"""Draw the pictures of the manual from the code that they are about.

Run: python docs/generate_pictures.py [--check]

Formats come from `mixprec.formats`, loss scales from `mixprec._loss_scale.advance` over gradients recorded in real
trainings (benchmarks/data), gradients from the same records. No number is typed in here but what is drawn where.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drawing import Drawing
from generated import run

sys.path.insert(0, str(Path(__file__).parents[1]))  # the records are beside the benchmarks

from benchmarks.streams import LOWEST, streams
from mixprec._loss_scale import Event, Rules, advance, initial
from mixprec.formats import BF16, FORMATS, FP16, FP32, FloatFormat

FOLDER = Path(__file__).parent / "pictures"


@dataclass(frozen=True)
class Axis:
    """Numbers from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a number."""
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def superscript(number: int) -> str:
    """`number` as an exponent."""
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def bits() -> Drawing:
    """Sign, exponent and mantissa of each format, a bit as wide as a bit."""
    picture, wide = Drawing(760, 272, "Bits of each format: sign, exponent and mantissa"), 19.0
    for row, format_ in enumerate(FORMATS.values()):
        y, x = 12 + 40 * row, 90.0
        picture.text(80, y + 20, format_.name, "end", "bold")
        for colour, count in (("grey", 1), ("orange", format_.exponent_bits), ("teal", format_.mantissa_bits)):
            for _ in range(count):
                picture.box(x, y, wide - 1.5, 28, colour)
                x += wide
        picture.text(x + 8, y + 19, f"{format_.bits} bits", kind="small")
    return legend(picture, 90, 266, (("grey", "sign"), ("orange", "exponent: range"), ("teal", "mantissa: digits")))


def legend(picture: Drawing, x: float, y: float, entries: Iterable[tuple[str, str]]) -> Drawing:
    """Coloured squares with words, in a row."""
    for colour, words in entries:
        picture.box(x, y - 10, 11, 11, colour)
        picture.text(x + 17, y, words, kind="small")
        x += 35 + 6.4 * len(words)
    return picture


def ranges() -> Drawing:
    """Where each format has numbers, on one logarithmic scale: from the smallest subnormal to the largest number."""
    picture, axis = Drawing(760, 308, "Range of each format on a scale of powers of two"), Axis(-152, 130, 90, 745)
    for power in range(-140, 121, 20):
        picture.line([(axis(power), 8), (axis(power), 258)], kind="grid")
        picture.text(axis(power), 274, f"2{superscript(power)}", "middle", "small")
    for row, format_ in enumerate(FORMATS.values()):
        y = 14 + 40 * row
        low, tiny, high = (math.log2(x) for x in (format_.smallest_subnormal, format_.tiny, format_.max))
        picture.text(80, y + 20, format_.name, "end", "bold")
        picture.box(axis(low), y, axis(tiny) - axis(low), 28, "orange", 0.75)
        picture.box(axis(tiny), y, axis(high) - axis(tiny), 28, "teal")
        inside = axis(high) - axis(low) > 170
        where = (axis(0), y + 19, f"{format_.smallest_subnormal:.1e} … {format_.max:.4g}")
        picture.text(
            where[0] if inside else axis(high) + 8,
            *where[1:],
            "middle" if inside else "start",
            "small on" if inside else "small",
        )
    return legend(picture, 90, 300, (("teal", "normal: all digits"), ("orange", "subnormal: fewer digits the smaller")))


def worst_error(format_: FloatFormat, power: float) -> float:
    """The largest relative error, from 2**-24 to 1, of rounding a number around 2**power."""
    x = 2.0**power
    if format_.round(x) == 0.0 or math.isinf(format_.round(x)):
        return 1.0
    return min(1.0, format_.spacing(x) / 2.0 / x)


ZERO, TINY, TOO_LARGE = (math.log2(x) for x in (FP16.underflow_threshold, FP16.tiny, FP16.overflow_threshold))
"""Edges of the zones of fp16, as powers of two."""


def precision() -> Drawing:
    """What rounding costs at each magnitude."""
    picture = Drawing(760, 330, "Relative rounding error at each magnitude for fp16, bf16 and fp32")
    across, down = Axis(-32, 20, 70, 745), Axis(0, -26, 20, 270)
    for power in range(-32, 21, 4):
        picture.line([(across(power), 20), (across(power), 270)], kind="grid")
        picture.text(across(power), 288, f"2{superscript(power)}", "middle", "small")
    for power in range(0, -25, -4):
        picture.line([(70, down(power)), (745, down(power))], kind="grid")
        picture.text(62, down(power) + 4, f"2{superscript(power)}" if power else "all lost", "end", "small")
    for colour, format_ in (("blue", FP32), ("teal", BF16), ("orange", FP16)):
        points = [(across(p / 8), down(math.log2(worst_error(format_, p / 8)))) for p in range(-32 * 8, 20 * 8 + 1)]
        picture.line(points, colour)
    for power, words in ((ZERO, "zero"), (TINY, "smallest normal"), (TOO_LARGE, "infinite")):
        picture.line([(across(power), 14), (across(power), 270)])
        picture.text(across(power) + 5, down(-18), words, kind="small")
    return legend(
        picture,
        70,
        318,
        (
            ("orange", "fp16"),
            ("teal", "bf16"),
            ("blue", "fp32"),
            ("grey", "magnitude of the number →, largest relative error ↑"),
        ),
    )


def gradients() -> Drawing:
    """Gradients of a recorded training in the zones of fp16, as they are and multiplied by 2**16."""
    picture = Drawing(760, 366, "Gradients of a real training in the zones of fp16, without and with a loss scale")
    counts = next(s for s in streams() if s.name == "autoencoder").weights_counts.sum(axis=0).astype(float)
    shares = counts / counts.sum()
    for row, shift in enumerate((0, 16)):
        bars = [(LOWEST + b + shift, float(share)) for b, share in enumerate(shares)]
        _histogram(picture, bars, 30 + 168 * row, shift)
    return legend(picture, 60, 358, (("red", "becomes zero"), ("orange", "subnormal"), ("teal", "all digits")))


def _histogram(picture: Drawing, bars: list[tuple[int, float]], top: float, shift: int) -> None:
    axis, tallest = Axis(-46, 20, 60, 745), max(share for _, share in bars)
    sums = {"red": 0.0, "orange": 0.0, "teal": 0.0}
    for power, share in bars:
        colour = "red" if power < ZERO else "orange" if power < TINY else "teal"
        sums[colour] += share
        if axis.low <= power < axis.high:
            height = 104 * share / tallest
            picture.box(axis(power), top + 112 - height, axis(1) - axis(0) - 1.5, height, colour)
    picture.line([(60, top + 112), (745, top + 112)])
    for power in range(-44, 21, 4):
        picture.text(axis(power), top + 127, f"2{superscript(power)}", "middle", "small")
    for edge in (ZERO, TINY, TOO_LARGE):
        picture.line([(axis(edge), top - 4), (axis(edge), top + 112)])
    words = f"multiplied by 2{superscript(shift)}" if shift else "as they are"
    told = f"{words}: {sums['red']:.1%} become zero, {sums['orange']:.1%} lose digits"
    picture.text(60, top - 12, told, kind="bold")
    picture.text(axis(TOO_LARGE) + 5, top + 12, "infinite", kind="small")


@dataclass(frozen=True)
class Run:
    """A loss scale over a recorded training: log2 of the scale and of what would have fitted, and what happened."""

    scales: list[float]
    limits: list[float]
    events: list[Event]


def loss_scale_run(rules: Rules, name: str, steps: int) -> Run:
    """`advance` over the first steps of a stream: a step overflows if scale times its largest gradient does."""
    stream, state = next(s for s in streams() if s.name == name), initial(rules)
    done = Run([], [], [])
    for step in range(steps):
        done.scales.append(math.log2(state.scale))
        done.limits.append(math.log2(FP16.overflow_threshold / stream.reach(step)))
        state, event = advance(rules, state, state.scale * stream.reach(step) >= FP16.overflow_threshold)
        done.events.append(event)
    return done


FEEDBACK = Rules(init_scale=2.0**24, growth_interval=200)
"""The rules of the picture: a high start and a short interval show in 1600 steps what takes PyTorch's 16000."""


def feedback() -> Drawing:
    """The loss scale over a recorded training, below what the largest gradient allows."""
    run_ = loss_scale_run(FEEDBACK, "gan-judge", 1600)
    picture = Drawing(760, 330, "A loss scale over 1600 steps of a recorded training")
    across, down = Axis(0, 1600, 60, 745), Axis(25, 15, 20, 270)
    for power in range(15, 26):
        picture.line([(60, down(power)), (745, down(power))], kind="grid")
        picture.text(52, down(power) + 4, f"2{superscript(power)}", "end", "small")
    for step in range(0, 1601, 200):
        picture.text(across(step), 288, str(step), "middle", "small")
    picture.line([(across(s), down(min(25.0, x))) for s, x in enumerate(run_.limits)], "grey")
    steps = [(across(s + d), down(x)) for s, x in enumerate(run_.scales) for d in (0, 1)]
    picture.line(steps, "teal")
    for step, event in enumerate(run_.events):
        if event is Event.BACK_OFF:
            picture.dot(across(step), down(run_.scales[step]), "red")
    return legend(
        picture,
        60,
        318,
        (
            ("teal", "loss scale"),
            ("grey", "65520 / largest gradient of the step"),
            ("red", "overflow: step skipped, scale halved"),
        ),
    )


def weights(format_: FloatFormat | None, master: FloatFormat, update: float, steps: int) -> list[float]:
    """A weight that starts at 1 and gets `update` every step, stored in `master` and seen through `format_`."""
    stored, seen = 1.0, []
    for _ in range(steps):
        seen.append(stored if format_ is None else format_.round(stored))
        stored = master.round(stored + update)
    return seen


def masters() -> Drawing:
    """Small updates of a weight, stored in 16 bits, and stored in float32 and rounded for use."""
    picture, update, steps = Drawing(760, 316, "1000 updates of 0.0002 to a weight of 1"), 2e-4, 1000
    across, down = Axis(0, steps, 70, 745), Axis(1.22, 0.98, 15, 255)
    for share in range(0, 5):
        y = down(1 + share * 0.05)
        picture.line([(70, y), (745, y)], kind="grid")
        picture.text(62, y + 4, f"{1 + share * 0.05:.2f}", "end", "small")
    for step in range(0, steps + 1, 200):
        picture.text(across(step), 274, str(step), "middle", "small")
    curves = (
        ("blue", weights(None, FP32, update, steps)),
        ("teal", weights(BF16, FP32, update, steps)),
        ("orange", weights(None, BF16, update, steps)),
    )
    for colour, values in curves:
        picture.line([(across(s), down(v)) for s, v in enumerate(values)], colour)
    return legend(
        picture,
        70,
        306,
        (
            ("blue", "float32"),
            ("teal", "bf16, with a float32 master"),
            ("orange", "bf16 alone: every update rounds away"),
        ),
    )


PICTURES: Mapping[str, Callable[[], Drawing]] = {
    "bits": bits,
    "ranges": ranges,
    "precision": precision,
    "gradients": gradients,
    "feedback": feedback,
    "masters": masters,
}


def outputs() -> Mapping[Path, str]:
    """Every picture."""
    return {FOLDER / f"{name}.svg": str(draw()) for name, draw in PICTURES.items()}


if __name__ == "__main__":
    sys.exit(run(outputs, sys.argv[1:]))
