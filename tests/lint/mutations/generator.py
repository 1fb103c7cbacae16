"""A mutant is a correct script with one mistake in it, and the code that names that mistake.

Operators work on lines, since every call of the protocol stands on a line of its own in the scripts. Each applies
wherever its mistake is possible, and yields one mutant per place.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

SCALE = re.compile(r"(?P<indent> *)(?P<s>[\w.]*scaler)\.scale\((?P<loss>[^()]+)\)\.backward\((?P<args>.*)\)$")
STEP = re.compile(r"(?P<indent> *)(?P<s>[\w.]*scaler)\.step\((?P<o>[\w.]+)\)$")
UNSCALE = re.compile(r"(?P<indent> *)(?P<s>[\w.]*scaler)\.unscale_\((?P<o>[\w.]+)\)$")
UPDATE = re.compile(r"(?P<indent> *)(?P<s>[\w.]*scaler)\.update\(\)$")
CLIP = re.compile(r" *(\w+ = |return )?torch\.nn\.utils\.clip_grad_\w+\(")
ZERO = re.compile(r"(?P<indent> *)(?P<o>[\w.]+)\.zero_grad\(.*\)$")
MAKE = re.compile(r"(?P<indent> *)(?P<s>[\w.]*scaler) = (?P<call>[\w.]*GradScaler\(.*\))$")
REGION = re.compile(r"(?P<indent> *)with (?P<call>[\w.]*autocast\(.*float16.*\)):$")
GUARD = re.compile(r"(?P<indent> *)if (?P<test>.*%.*|is_update_step|need_update|update):$")
LOOP = re.compile(r"(?P<indent> *)(for .* in .*|while .*):$")

Lines = list[str]
Place = tuple[int, "re.Match[str]"]


@dataclass(frozen=True)
class Mutant:
    """A broken script: from which script, by which operator, at which 1-based line, and the codes that are right."""

    script: str
    operator: str
    line: int
    codes: frozenset[str]
    source: str


Operator = Callable[[Lines], Iterator[tuple[int, Lines]]]
OPERATORS: dict[str, tuple[tuple[str, ...], Operator]] = {}


def operator(*codes: str) -> Callable[[Operator], Operator]:
    """Register an operator and the codes of which one must be found."""

    def register(function: Operator) -> Operator:
        OPERATORS[function.__name__] = (codes, function)
        return function

    return register


def scripts() -> dict[str, str]:
    """The correct scripts, by name."""
    return dict(_load("scripts").SCRIPTS)


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutation_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutants() -> Iterator[Mutant]:
    """Every mutant of every script, in a fixed order."""
    for name, source in scripts().items():
        for title, (codes, function) in OPERATORS.items():
            for line, lines in function(source.splitlines()):
                yield Mutant(name, title, line + 1, frozenset(codes), "\n".join(lines) + "\n")


# --- finding places


def places(lines: Lines, pattern: re.Pattern[str]) -> list[Place]:
    return [(n, match) for n, line in enumerate(lines) if (match := pattern.match(line))]


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def block_end(lines: Lines, start: int) -> int:
    """The line behind the block that the line `start` opens."""
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > indent(lines[start])):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return end


def opener(lines: Lines, at: int) -> int | None:
    """The line that opens the block which line `at` stands in."""
    return next((n for n in range(at - 1, -1, -1) if lines[n].strip() and indent(lines[n]) < indent(lines[at])), None)


def siblings(lines: Lines, at: int) -> list[int]:
    """The lines of the block of line `at` that have its indent."""
    start = opener(lines, at)
    first, last = (0, len(lines)) if start is None else (start + 1, block_end(lines, start))
    return [n for n in range(first, last) if lines[n].strip() and indent(lines[n]) == indent(lines[at])]


def beside(lines: Lines, at: int, pattern: re.Pattern[str], later: bool = True) -> list[int]:
    """Lines in the block of `at`, behind it (or before it), that match."""
    return [n for n in siblings(lines, at) if (n > at if later else n < at) and pattern.match(lines[n])]


def without(lines: Lines, *gone: int) -> Lines:
    return [line for n, line in enumerate(lines) if n not in gone]


def with_line(lines: Lines, at: int, text: str) -> Lines:
    return [*lines[:at], text, *lines[at:]]


def moved(lines: Lines, source: int, target: int, spaces: int | None = None) -> Lines:
    """The line `source` put before the line `target`, with another indent if one is given."""
    text = lines[source]
    text = text if spaces is None else " " * spaces + text.strip()
    rest = with_line(lines, target, text)
    return without(rest, source + (1 if source >= target else 0))


def guards(lines: Lines, at: int) -> int | None:
    """The accumulation guard whose block line `at` stands in directly."""
    start = opener(lines, at)
    return start if start is not None and GUARD.match(lines[start]) else None


def loop_around(lines: Lines, at: int) -> int | None:
    start = opener(lines, at)
    while start is not None and not LOOP.match(lines[start]):
        start = opener(lines, start) if indent(lines[start]) else None
    return start


# --- operators


@operator("MP002")
def drop_unscale_before_clip(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UNSCALE):
        if beside(lines, n, CLIP):
            yield n, without(lines, n)


@operator("MP002")
def clip_before_unscale(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UNSCALE):
        clips = beside(lines, n, CLIP)
        if clips and "return" not in lines[clips[0]]:
            yield n, moved(lines, n, clips[0] + 1)


@operator("MP002")
def clip_added_before_step(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        block = [lines[k] for k in siblings(lines, n)]
        if not any(UNSCALE.match(line) or CLIP.match(line) for line in block) and beside(lines, n, SCALE, later=False):
            text = f"{match['indent']}torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
            yield n, with_line(lines, n, text)


@operator("MP003")
def step_past_the_scaler(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        if "norm > LIMIT" not in "".join(lines):
            yield n, [*lines[:n], f"{match['indent']}{match['o']}.step()", *lines[n + 1 :]]


@operator("MP003")
def step_twice(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        yield n, with_line(lines, n + 1, f"{match['indent']}{match['o']}.step()")


@operator("MP004")
def drop_scale(lines: Lines) -> Iterator[tuple[int, Lines]]:
    several = len(places(lines, SCALE)) > 1
    for n, match in places(lines, SCALE):
        if not several:
            text = f"{match['indent']}{match['loss']}.backward({match['args']})"
            yield n, [*lines[:n], text, *lines[n + 1 :]]


@operator("MP005")
def drop_update(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UPDATE):
        if not any("first_step" in line for line in lines):
            yield n, without(lines, n)


@operator("MP006")
def update_between_optimizers(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, UPDATE):
        steps = [k for k in beside(lines, n, STEP, later=False) if lines[k].strip().startswith(match["s"] + ".")]
        if len(steps) >= 2:
            yield n, moved(lines, n, steps[0] + 1)
            yield steps[0], with_line(lines, steps[0] + 1, lines[n])


@operator("MP007", "MP025")
def unscale_twice(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UNSCALE):
        yield n, with_line(lines, n + 1, lines[n])


@operator("MP007")
def unscale_in_micro_batch(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UNSCALE):
        guard = guards(lines, n)
        if guard is not None:
            yield n, moved(lines, n, guard, indent(lines[guard]))


@operator("MP007", "MP002")
def unscale_inside_the_micro_loop(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UNSCALE):
        inner = [k for k in beside(lines, n, LOOP, later=False) if "micro" in lines[k]]
        if inner:
            yield n, moved(lines, n, block_end(lines, inner[0]), indent(lines[inner[0]]) + 4)


@operator("MP008")
def update_in_micro_batch(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UPDATE):
        guard = guards(lines, n)
        if guard is not None:
            yield n, moved(lines, n, block_end(lines, guard), indent(lines[guard]))
            yield n, moved(lines, n, guard, indent(lines[guard]))


@operator("MP008")
def update_before_step(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, UPDATE):
        steps = [k for k in beside(lines, n, STEP, later=False) if lines[k].strip().startswith(match["s"] + ".")]
        if len(steps) == 1:
            yield n, moved(lines, n, steps[0])


@operator("MP016")
def scaler_made_in_the_loop(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, MAKE):
        loops = [
            k for k in beside(lines, n, LOOP) if any(match["s"] in line for line in lines[k : block_end(lines, k)])
        ]
        if loops and "enabled" not in match["call"]:
            yield n, moved(lines, n, loops[0] + 1, indent(lines[loops[0]]) + 4)


@operator("MP017")
def scaler_left_out_of_checkpoint(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if "scaler.state_dict()" in line and ("[" in line or ":" in line):
            yield n, without(lines, n)
        if "scaler.load_state_dict(" in line:
            yield n, without(lines, n)


@operator("MP018")
def second_scaler_steps(lines: Lines) -> Iterator[tuple[int, Lines]]:
    makes = places(lines, MAKE)
    if len(makes) != 1 or "self." in makes[0][1]["s"]:
        return
    at, make = makes[0]
    for n, match in places(lines, STEP):
        if loop_around(lines, n) is None or match["s"] != make["s"] or opener(lines, at) != _outside(lines, n):
            continue
        changed = [*lines[:n], lines[n].replace(match["s"], "other_scaler"), *lines[n + 1 :]]
        yield n, with_line(changed, at, lines[at].replace(make["s"], "other_scaler", 1))


def _outside(lines: Lines, n: int) -> int | None:
    loop = loop_around(lines, n)
    return None if loop is None else opener(lines, loop) if indent(lines[loop]) else None


@operator("MP019")
def bfloat16_with_scaler(lines: Lines) -> Iterator[tuple[int, Lines]]:
    source = "\n".join(lines)
    if (
        "enabled=args" in source
        or "args.dtype" in source
        or "first_step" in source
        or "scaler=None" in source
        or not places(lines, MAKE)
    ):
        return
    if "torch.float16" in source:
        yield 0, source.replace("torch.float16", "torch.bfloat16").splitlines()


@operator("MP020")
def scheduler_unguarded(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if line.strip() == "scheduler.step()" and "get_scale" in lines[n - 1]:
            yield n, [*lines[: n - 1], " " * indent(lines[n - 1]) + "scheduler.step()", *lines[n + 1 :]]


@operator("MP020")
def scheduler_added(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, UPDATE):
        if places(lines, MAKE) and "sched" not in "\n".join(lines) and beside(lines, n, STEP, later=False):
            yield n, with_line(lines, n + 1, f"{match['indent']}scheduler.step()")


@operator("MP213")
def scheduler_before_step(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if line.strip() == "scheduler.step()" and "get_scale" in lines[n - 1]:
            step = places(lines, STEP)[0][0]
            yield n, moved(without(lines, n - 1), n - 1, step, indent(lines[step]))


@operator("MP022")
def penalty_not_unscaled(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if "inv_scale = " in line:
            rest = without(lines, n)
            yield n, [text.replace(" * inv_scale", "") for text in rest]


@operator("MP023")
def scaled_loss_logged(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, SCALE):
        loop = loop_around(lines, n)
        later = [] if loop is None else lines[n + 1 : block_end(lines, loop)]
        if any(f"{match['loss']}.item()" in line for line in later) and re.fullmatch(r"\w+", match["loss"]):
            made = f"{match['indent']}{match['loss']} = {match['s']}.scale({match['loss']})"
            yield n, [*lines[:n], made, f"{match['indent']}{match['loss']}.backward()", *lines[n + 1 :]]


@operator("MP024")
def closure_for_the_scaler(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        text = f"{match['indent']}{match['s']}.step({match['o']}, closure=closure)"
        yield n, [*lines[:n], text, *lines[n + 1 :]]


@operator("MP024")
def lbfgs_with_scaler(lines: Lines) -> Iterator[tuple[int, Lines]]:
    source = "\n".join(lines)
    made = re.search(r"torch\.optim\.\w+\(([\w.]+)\.parameters\(\)(, lr=[\w.-]+)?(, momentum=0.9)?\)", source)
    if made and "first_step" not in source:
        yield 0, source.replace(made[0], f"torch.optim.LBFGS({made[1]}.parameters())").splitlines()


@operator("MP025")
def sam_on_scaled_gradients(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UNSCALE):
        if n + 1 < len(lines) and "_step(zero_grad" in lines[n + 1]:
            yield n, without(lines, n)


@operator("MP025")
def sam_without_update_between(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if "first_step" in line:
            yield n, without(lines, n + 1)


@operator("MP001")
def scaler_taken_out(lines: Lines) -> Iterator[tuple[int, Lines]]:
    source = "\n".join(lines)
    if any(
        word in source for word in ("args.", "use_amp", "scaler=None", "class ", "get_scale", "first_step", "LIMIT")
    ):
        return
    kept = []
    for line in lines:
        if MAKE.match(line) or UNSCALE.match(line) or UPDATE.match(line) or "scaler.state_dict" in line:
            continue
        line = re.sub(r"[\w.]*scaler\.scale\(([^()]+)\)", r"\1", line)
        line = re.sub(r"[\w.]*scaler\.step\(([\w.]+)\)", r"\1.step()", line)
        line = line.replace(", scaler", "").replace("scaler, ", "").replace("grad_scaler", "")
        if "scaler.load_state_dict" in line:
            continue
        kept.append(line)
    text = "\n".join(kept)
    if "scaler" not in text and ".step()" in text:
        yield 0, kept


@operator("MP083")
def backward_in_region(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, REGION):
        end = block_end(lines, n)
        following = [k for k in siblings(lines, n) if k >= end][:1]
        if following and SCALE.match(lines[following[0]]):
            at = following[0]
            yield at, moved(lines, at, end, indent(lines[n]) + 4)


@operator("MP083")
def region_around_backward(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, SCALE):
        region = f'{match["indent"]}with torch.autocast("cuda", dtype=torch.float16):'
        yield n, [*lines[:n], region, "    " + lines[n], *lines[n + 1 :]]


@operator("MP088")
def step_in_region(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        region = f'{match["indent"]}with torch.autocast("cuda", dtype=torch.float16):'
        yield n, [*lines[:n], region, "    " + lines[n], *lines[n + 1 :]]


@operator("MP142", "MP005")
def update_skipped_with_the_step(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, UPDATE):
        before = [k for k in siblings(lines, n) if k < n]
        if before and lines[before[-1]].strip() == "else:":
            yield n, moved(lines, n, block_end(lines, before[-1]), indent(lines[n]) + 4)


@operator("MP142", "MP005")
def bad_norm_leaves_the_iteration(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, UNSCALE):
        loop, steps = loop_around(lines, n), beside(lines, n, STEP)
        clears = beside(lines, n, ZERO, later=False)
        if loop is None or not steps or not clears or guards(lines, n) is not None or opener(lines, n) != loop:
            continue
        spaces = match["indent"]
        yield n, [*lines[: n + 1], f"{spaces}if not torch.isfinite(loss):", f"{spaces}    continue", *lines[n + 1 :]]


@operator("MP144")
def loss_made_of_a_number(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, SCALE):
        if re.fullmatch(r"\w+", match["loss"]):
            text = f"{match['indent']}{match['loss']} = torch.tensor({match['loss']}.item(), requires_grad=True)"
            yield n, with_line(lines, n, text)


@operator("MP144")
def loss_detached(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, SCALE):
        if re.fullmatch(r"\w+", match["loss"]):
            yield n, with_line(lines, n, f"{match['indent']}{match['loss']} = {match['loss']}.detach()")


@operator("MP146")
def drop_zero_grad(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, ZERO):
        others = [k for k, other in places(lines, ZERO) if other["o"] == match["o"] and k != n]
        alone = guards(lines, n) is not None and len(siblings(lines, n)) == 1
        if all(loop_around(lines, k) is None for k in others) and loop_around(lines, n) is not None:
            yield n, without(lines, n - 1, n) if alone else without(lines, n)


@operator("MP146")
def zero_grad_before_step(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        backward = beside(lines, n, SCALE, later=False)
        if backward and len(places(lines, STEP)) == 1:
            yield n, with_line(lines, backward[-1] + 1, f"{match['indent']}{match['o']}.zero_grad()")


@operator("MP146")
def zero_grad_in_micro_batch(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, ZERO):
        guard = guards(lines, n)
        if guard is not None and loop_around(lines, n) is not None and "loss_scaler" not in "\n".join(lines):
            yield n, moved(lines, n, block_end(lines, guard), indent(lines[guard]))


@operator("MP147")
def dtype_dropped(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if "dtype=ptdtype" in line:
            yield n, [*lines[:n], line.replace(", dtype=ptdtype", ""), *lines[n + 1 :]]


@operator("MP160")
def joined_ranks(lines: Lines) -> Iterator[tuple[int, Lines]]:
    source = "\n".join(lines)
    if "DDP(" not in source:
        return
    for n, match in places(lines, LOOP):
        if "in loader" in lines[n]:
            end = block_end(lines, n)
            body = ["    " + line if line.strip() else line for line in lines[n:end]]
            head = ["from torch.distributed.algorithms.join import Join"]
            yield n, [*head, *lines[:n], f"{match['indent']}with Join([model]):", *body, *lines[end:]]


@operator("MP161")
def rank_leaves_on_nan(lines: Lines) -> Iterator[tuple[int, Lines]]:
    if "DDP(" not in "\n".join(lines):
        return
    for n, match in places(lines, SCALE):
        spaces = match["indent"]
        yield n, [*lines[:n], f"{spaces}if torch.isnan(loss):", f"{spaces}    continue", *lines[n:]]


@operator("MP170")
def step_before_anything(lines: Lines) -> Iterator[tuple[int, Lines]]:
    if len(places(lines, STEP)) != 1 or len(places(lines, UPDATE)) != 1 or not places(lines, MAKE):
        return
    for n, _ in places(lines, STEP):
        loop, update = opener(lines, n), places(lines, UPDATE)[0][0]
        made = [k for k, match in places(lines, MAKE) if "enabled" not in match["call"]]
        if loop is None or not LOOP.match(lines[loop]) or update != n + 1 or not made:
            continue
        between = lines[loop + 1 : n]
        if not any(UNSCALE.match(line) for line in between):
            yield n, [*lines[: loop + 1], lines[n], lines[n + 1], *between, *lines[n + 2 :]]


@operator("MP201")
def scale_read_late(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, line in enumerate(lines):
        if ".item() / scaler.get_scale()" in line:
            yield n, moved(lines, n, places(lines, UPDATE)[0][0] + 1)


@operator("MP203")
def loss_not_divided(lines: Lines) -> Iterator[tuple[int, Lines]]:
    source = "\n".join(lines)
    if "loss_scaler" in source or not any(GUARD.match(line) and "%" in line for line in lines):
        return
    for n, line in enumerate(lines):
        division = re.search(r"(loss = loss)? / (\w+\.)?(ACCUM_STEPS|accum_steps)", line)
        if division:
            yield n, without(lines, n) if division[1] else [*lines[:n], line.replace(division[0], ""), *lines[n + 1 :]]


@operator("MP204")
def guard_taken_away(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, _ in places(lines, GUARD):
        end = block_end(lines, n)
        if loop_around(lines, n) is None or not any(STEP.match(line) for line in lines[n:end]):
            continue
        yield n, [*lines[:n], *(line[4:] if line.strip() else line for line in lines[n + 1 : end]), *lines[end:]]


@operator("MP209")
def one_of_two_steps_dropped(lines: Lines) -> Iterator[tuple[int, Lines]]:
    steps = places(lines, STEP)
    made = [match for line in lines if (match := re.match(r" *(opt\w+|self\.opt\w+) = torch\.optim", line))]
    if len(steps) == 2 and len(made) == 2 and not any("def train_step" in line for line in lines):
        for n, match in steps:
            used = [k for k, line in enumerate(lines) if f"unscale_({match['o']})" in line]
            yield n, without(lines, n, *used)


@operator("MP214")
def unscale_after_step(lines: Lines) -> Iterator[tuple[int, Lines]]:
    for n, match in places(lines, STEP):
        block = [lines[k] for k in siblings(lines, n)]
        if not any(UNSCALE.match(line) for line in block) and not any("unscale_" in line for line in lines):
            yield n, with_line(lines, n + 1, f"{match['indent']}{match['s']}.unscale_({match['o']})")
