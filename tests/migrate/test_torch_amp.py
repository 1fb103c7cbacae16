"""Moved code means what it meant: same arguments by their names, nothing else touched, or refused with its line."""

from __future__ import annotations

import re
import textwrap
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.migrate import migrate


def moved(source: str, to: str = "torch") -> str:
    """The text after a migration in which everything was understood."""
    result = migrate(textwrap.dedent(source), to=to)
    assert result.refusals == ()
    return result.after


MOVES = {
    "a name and its calls": (
        "from torch.cuda.amp import GradScaler, autocast  # amp\ns = GradScaler(enabled=on)\nwith autocast(on): pass\n",
        'from torch.amp import GradScaler, autocast  # amp\ns = GradScaler("cuda", enabled=on)\n'
        'with autocast("cuda", enabled=on): pass\n',
        'from mixprec import GradScaler, autocast  # amp\ns = GradScaler("cuda", enabled=on)\n'
        'with autocast("cuda", enabled=on): pass\n',
    ),
    "positional arguments whose order has changed": (
        "from torch.cuda.amp import autocast as ac\nwith ac(True, dt, False): pass\n",
        'from torch.amp import autocast as ac\nwith ac("cuda", enabled=True, dtype=dt, cache_enabled=False): pass\n',
        'from mixprec import autocast as ac\nwith ac("cuda", enabled=True, dtype=dt, cache_enabled=False): pass\n',
    ),
    "positional arguments whose order has not": (
        "from torch.cuda.amp import GradScaler\ns = GradScaler(2.0**10, 2.0, growth_interval=5)\n",
        'from torch.amp import GradScaler\ns = GradScaler("cuda", 2.0**10, 2.0, growth_interval=5)\n',
        'from mixprec import GradScaler\ns = GradScaler("cuda", 2.0**10, 2.0, growth_interval=5)\n',
    ),
    "a module": (
        "from torch.cuda import amp\ns = amp.GradScaler()\nwith amp.autocast(): pass\n",
        'from torch import amp\ns = amp.GradScaler("cuda")\nwith amp.autocast("cuda"): pass\n',
        'import mixprec\n\ns = mixprec.GradScaler("cuda")\nwith mixprec.autocast("cuda"): pass\n',
    ),
    "written in full": (
        "import torch\nwith torch.cuda.amp.autocast(dtype=torch.bfloat16): pass\n",
        'import torch\nwith torch.amp.autocast("cuda", dtype=torch.bfloat16): pass\n',
        'import torch\nimport mixprec\n\nwith mixprec.autocast("cuda", dtype=torch.bfloat16): pass\n',
    ),
    "a custom function": (
        "from torch.cuda.amp import custom_bwd, custom_fwd\n@custom_fwd\ndef f(c): pass\n"
        "@custom_fwd(cast_inputs=dt)\ndef g(c): pass\n@custom_bwd\ndef h(c): pass\n",
        'from torch.amp import custom_bwd, custom_fwd\n@custom_fwd(device_type="cuda")\ndef f(c): pass\n'
        '@custom_fwd(device_type="cuda", cast_inputs=dt)\ndef g(c): pass\n'
        '@custom_bwd(device_type="cuda")\ndef h(c): pass\n',
        'from torch.amp import custom_bwd, custom_fwd\n@custom_fwd(device_type="cuda")\ndef f(c): pass\n'
        '@custom_fwd(device_type="cuda", cast_inputs=dt)\ndef g(c): pass\n'
        '@custom_bwd(device_type="cuda")\ndef h(c): pass\n',
    ),
    "the CPU's": (
        "import torch\nwith torch.cpu.amp.autocast(): pass\n",
        'import torch\nwith torch.amp.autocast("cpu"): pass\n',
        'import torch\nimport mixprec\n\nwith mixprec.autocast("cpu"): pass\n',
    ),
    "a type in an annotation and in isinstance": (
        "from torch.cuda.amp import GradScaler\ndef f(s: GradScaler | None): return isinstance(s, (GradScaler, int))\n",
        "from torch.amp import GradScaler\ndef f(s: GradScaler | None): return isinstance(s, (GradScaler, int))\n",
        "from mixprec import GradScaler\ndef f(s: GradScaler | None): return isinstance(s, (GradScaler, int))\n",
    ),
    "names that part": (
        "from torch.cuda.amp import autocast, custom_fwd\nwith autocast(): pass\n",
        'from torch.amp import autocast, custom_fwd\nwith autocast("cuda"): pass\n',
        'from mixprec import autocast\nfrom torch.amp import custom_fwd\nwith autocast("cuda"): pass\n',
    ),
    "current PyTorch": (
        "import torch\nfrom torch.amp import GradScaler\nclass S(GradScaler): pass\n"
        'with torch.autocast("cuda"): pass\n',
        "import torch\nfrom torch.amp import GradScaler\nclass S(GradScaler): pass\n"
        'with torch.autocast("cuda"): pass\n',
        "import torch\nfrom mixprec import GradScaler\nimport mixprec\n\nclass S(GradScaler): pass\n"
        'with mixprec.autocast("cuda"): pass\n',
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_each_spelling_moves(name):
    """To current PyTorch and to mixprec, and a second migration finds nothing to do."""
    before, torch_way, our_way = MOVES[name]
    assert moved(before, "torch") == torch_way
    assert moved(before, "mixprec") == our_way
    assert not migrate(torch_way, to="torch").changed
    assert not migrate(our_way, to="mixprec").changed


REFUSED = {
    "a value": ("from torch.cuda.amp import autocast\nwrap(autocast)\n", 2, "used as a value"),
    "unpacked arguments": ("from torch.cuda.amp import GradScaler\nGradScaler(*given)\n", 2, "unpacked"),
    "a base class": ("import torch\nclass S(torch.cuda.amp.GradScaler): pass\n", 2, "used as a value"),
    "a conditional import": (
        "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\n",
        2,
        "under a condition",
    ),
    "a star import": ("from torch.cuda.amp import *\n", 1, "star import"),
    "an assignment": ("import torch\ntorch.cuda.amp.GradScaler = Fake\n", 2, "assigned to"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_left_and_named(name):
    """Nothing changes, and the refusal has the line and the reason."""
    source, line, why = REFUSED[name]
    result = migrate(source)
    assert not result.changed
    assert [refusal.line for refusal in result.refusals] == [line]
    assert re.search(why, result.refusals[0].why)


def test_a_refused_name_does_not_hold_back_another():
    """One name of an import is used in a way that is not understood; the other moves, and the import is parted."""
    result = migrate("from torch.cuda.amp import GradScaler, autocast\nf(autocast)\ns = GradScaler()\n")
    assert result.after == (
        'from torch.amp import GradScaler\nfrom torch.cuda.amp import autocast\nf(autocast)\ns = GradScaler("cuda")\n'
    )
    assert [refusal.what for refusal in result.refusals] == ["autocast"]


ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"enabled": st.booleans(), "dtype": st.sampled_from(["torch.bfloat16", "torch.float16"])}
)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(ARGUMENTS, st.booleans())
def test_the_moved_call_makes_the_same_region(arguments, positional):
    """torch.cpu.amp.autocast with any arguments, before and after, has the same device, dtype, flag and cache flag."""
    ordered = [arguments[name] for name in ("enabled", "dtype") if name in arguments]
    in_order = positional and list(arguments) in (["enabled"], ["enabled", "dtype"])
    text = ", ".join(map(str, ordered)) if in_order else ", ".join(f"{k}={v}" for k, v in arguments.items())
    before = f"import torch\nregion = torch.cpu.amp.autocast({text})\n"

    def made(source: str) -> tuple:
        names: dict = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(source, names)
        region = names["region"]
        return region.device, region.fast_dtype, region._enabled, region._cache_enabled

    assert isinstance(torch.autocast("cpu"), torch.autocast)
    assert made(moved(before, "torch")) == made(before)
    assert made(moved(before, "mixprec")) == made(before)


@pytest.mark.parametrize(("arguments", "error"), [({"to": "jax"}, UnknownNameError), ({}, InvalidValueError)])
def test_a_wrong_target_or_no_python_is_refused(arguments, error):
    """An unknown target is named; a file that does not parse says where, while the nearest that does is moved."""
    with pytest.raises(error):
        migrate("from torch.cuda.amp import autocast\nwith autocast() print\n", **arguments)
    assert migrate("from torch.cuda.amp import autocast\nwith autocast(): print\n").changed
