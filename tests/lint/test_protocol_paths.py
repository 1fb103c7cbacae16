"""What holds on every path is said plainly, what holds under a flag with the flag, and what is unclear not at all."""

from __future__ import annotations

import pytest

from mixprec.lint import lint_source
from mixprec.records import Severity

START = """\
import argparse
import torch

args = argparse.ArgumentParser().parse_args()
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def said(source: str) -> list[tuple[str, str]]:
    """(code, message) of every warning and error."""
    found = lint_source(START + source, "paths.py")
    return [(f.code, f.message) for f in found if f.severity is not Severity.INFO]


def loop(body: str, head: str = "for i, x in enumerate(loader):") -> str:
    lines = "\n".join(f"    {line}" if line else "" for line in body.strip().split("\n"))
    return f"{head}\n{lines}\n"


CLIPPED = """
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
    loss = model(x).mean()
scaler.scale(loss).backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
"""


def test_an_open_switch_of_the_scaler_is_named():
    """A scaler that a flag enables is wrong when the flag is on, and the message says so."""
    source = 'scaler = torch.amp.GradScaler("cuda", enabled=args.amp)\n' + loop(CLIPPED)

    assert said(source) == [
        ("MP002", "Gradients are clipped while they still carry the loss scale when `args.amp` is true.")
    ]


def test_a_negative_switch_is_named_the_right_way_round():
    """`enabled=not args.fp32` is wrong when the flag is off."""
    source = 'scaler = torch.amp.GradScaler("cuda", enabled=not args.fp32)\n' + loop(CLIPPED)

    assert said(source)[0][1].endswith("when `args.fp32` is false.")


def test_a_scaler_that_is_off_cannot_be_misused():
    """`enabled=False` makes every call of the protocol harmless."""
    assert said('scaler = torch.amp.GradScaler("cuda", enabled=False)\n' + loop(CLIPPED)) == []


def test_a_constant_switch_decides():
    """A module constant takes one side; the dead side is not looked at."""
    switch = "USE_SCALER = {}\n" + 'scaler = torch.amp.GradScaler("cuda", enabled=USE_SCALER)\n'

    assert [code for code, _ in said(switch.format("True") + loop(CLIPPED))] == ["MP002"]
    assert said(switch.format("False") + loop(CLIPPED)) == []


CORRELATED = [
    ("args.amp", "args.amp"),
    ("args.amp", "not (not args.amp)"),
    ('args.dtype == "fp16"', '"fp16" == args.dtype'),
    ('args.dtype == "fp16"', 'not args.dtype != "fp16"'),
    ('args.dtype in ("fp16", "half")', 'args.dtype in ("fp16", "half")'),
    ("args.amp and not args.cpu", "args.amp and not args.cpu"),
    ("args.level > 0", "not args.level <= 0"),
]


@pytest.mark.parametrize(("first", "second"), CORRELATED)
def test_the_same_flag_takes_the_same_side_everywhere(first, second):
    """Scaling under a flag and stepping under the same flag, however it is written, is right."""
    body = f"""
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).mean()
if {first}:
    scaler.scale(loss).backward()
else:
    loss.backward()
if {second}:
    scaler.step(optimizer)
    scaler.update()
else:
    optimizer.step()
"""
    assert said('scaler = torch.amp.GradScaler("cuda")\n' + loop(body)) == []


def test_two_flags_that_disagree_are_named():
    """Scaling under one flag and stepping under another is wrong when they differ; both directions are said."""
    body = """
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).mean()
if args.scale:
    scaler.scale(loss).backward()
else:
    loss.backward()
if args.amp:
    scaler.step(optimizer)
    scaler.update()
else:
    optimizer.step()
"""
    messages = dict(said('scaler = torch.amp.GradScaler("cuda")\n' + loop(body)))

    assert "`args.scale` is true" in messages["MP003"]
    assert "`args.scale` is false" in messages["MP004"]


def test_one_of_two_values_of_an_option():
    """Two values of one option exclude each other: the branch for one is not reached under the other."""
    body = """
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).mean()
if args.dtype == "fp16":
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
elif args.dtype == "bf16":
    loss.backward()
else:
    loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
if args.dtype == "bf16":
    optimizer.step()
elif args.dtype == "fp16":
    scaler.step(optimizer)
    scaler.update()
else:
    optimizer.step()
"""
    assert said('scaler = torch.amp.GradScaler("cuda")\n' + loop(body)) == []


GUARDS = [
    "(i + 1) % accum == 0",
    "i % accum == accum - 1",
    "not (i + 1) % accum",
    "((i + 1) % accum == 0) or (i + 1 == len(loader))",
    "(i + 1) % accum == 0 and i > 0",
    "i == len(loader) - 1 or (i + 1) % args.accum == 0",
    "accelerate_like.sync_gradients",
    "is_update_step",
]


@pytest.mark.parametrize("guard", GUARDS)
def test_every_form_of_an_accumulation_guard_is_understood(guard):
    """What stands under the guard together is right; update alone outside of it is not."""
    body = f"""
is_update_step = (i + 1) % accum == 0
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).mean() / accum
scaler.scale(loss).backward()
if {guard}:
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    optimizer.zero_grad()
    scaler.update()
"""
    start = 'accum = args.accum\nscaler = torch.amp.GradScaler("cuda")\n'
    late = body.replace("    scaler.update()\n", "scaler.update()\n")
    every = body.replace("    scaler.unscale_(optimizer)\n", "").replace(
        f"if {guard}:", f"scaler.unscale_(optimizer)\nif {guard}:"
    )

    assert said(start + loop(body)) == []
    assert [code for code, _ in said(start + loop(late))] == ["MP008"]
    assert [code for code, _ in said(start + loop(every))] == ["MP007"]


def test_a_guard_set_by_branches():
    """A truth value that branches put into a name is followed."""
    body = """
should_step = False
if (i + 1) % args.accum == 0:
    should_step = True
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).mean() / args.accum
scaler.scale(loss).backward()
if should_step:
    scaler.step(optimizer)
    scaler.update()
if should_step:
    optimizer.zero_grad()
"""
    start = 'scaler = torch.amp.GradScaler("cuda")\n'

    assert said(start + loop(body)) == []
    assert [c for c, _ in said(start + loop(body.replace("    scaler.update()", "scaler.update()")))] == ["MP008"]


def test_tests_that_are_not_understood_together_give_silence():
    """One test nested in what another implies is beyond the walk, so nothing is said."""
    body = """
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).mean()
scaler.scale(loss).backward()
if i % 2 == 0:
    scaler.unscale_(optimizer)
if i % 4 == 0:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
"""
    assert said('scaler = torch.amp.GradScaler("cuda")\n' + loop(body)) == []


def test_a_walk_beyond_its_budget_gives_silence():
    """A hundred independent tests around the protocol are too many paths: no crash, no guess."""
    tests = "\n".join(f"if args.flag{n}:\n    optimizer.zero_grad()\n    scaler.update()" for n in range(100))
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n    loss = model(x).mean()'
    body = f"{region}\n{tests}\nscaler.step(optimizer)"

    assert said('scaler = torch.amp.GradScaler("cuda")\n' + loop(body)) == []


def test_the_second_iteration_shows_what_the_first_hides():
    """A scaler made when it is first needed is made once; one made when the epoch starts is made again."""
    step = """
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    lazily = (
        f'scaler = None\nfor x in loader:\n    if scaler is None:\n        scaler = torch.amp.GradScaler("cuda"){step}'
    )
    again = f'for x in loader:\n    scaler = torch.amp.GradScaler("cuda"){step}'

    assert said(lazily) == []
    assert [code for code, _ in said(again)] == ["MP016"]


def test_a_choice_between_contexts():
    """`nullcontext() if … else autocast` enters a region on one side only, and the message says which."""
    body = """
optimizer.zero_grad()
with ctx:
    loss = model(x).mean()
    loss.backward()
optimizer.step()
"""
    choice = """
from contextlib import nullcontext

ctx = nullcontext() if args.fp32 else torch.autocast("cuda", dtype=torch.bfloat16)
"""
    assert said(choice + loop(body)) == [
        ("MP083", "backward() runs inside the autocast region when `args.fp32` is false.")
    ]
    assert said("from contextlib import nullcontext\nctx = nullcontext()\n" + loop(body)) == []


def test_a_disabled_inner_region_is_no_region():
    """`autocast(enabled=False)` inside a region ends it for what stands in it."""
    body = """
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(x).mean()
    with torch.autocast("cuda", enabled=False):
        loss.float().backward()
optimizer.step()
"""
    assert said(loop(body)) == []
    assert [c for c, _ in said(loop(body.replace("enabled=False", "dtype=torch.float16")))] == ["MP083"]
