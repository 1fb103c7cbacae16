"""A walk ends, survives any text, and says nothing about what the run decides."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from mixprec.lint import FileView, Project
from mixprec.lint.dtypes import Tensor, traces
from mixprec.lint.dtypes._walker import Walker

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
ENDLESS = {
    "recursion": "def f(x):\n    return f(x.half())\n\nf(torch.ones(1))\n",
    "mutual recursion": "def f(x):\n    return g(x)\n\ndef g(x):\n    return f(x)\n\nf(torch.ones(1))\n",
    "endless loop": "x = torch.ones(1)\nwhile True:\n    x = x.half() + 1\n",
    "module in itself": "class M(nn.Module):\n    def forward(self, x):\n        return self(x)\n\nM()(1)\n",
    "property of itself": "class A:\n    @property\n    def x(self):\n        return self.x\n\nA().x\n",
    "class that inherits from itself": "class A:\n    pass\n\nclass A(A):\n    pass\n\nA()\n",
    "wide nesting": "\n".join(f"{'    ' * i}for i{i} in range(9):" for i in range(12)) + "\n" + "    " * 12 + "pass\n",
    "many branches": "x = torch.ones(1)\n" + "if f():\n    x = x.half()\nelse:\n    x = x * 2\n" * 400,
    "deep call chain": "".join(f"def f{i}(x):\n    return f{i + 1}(f{i + 1}(x))\n\n" for i in range(30)) + "f0(1)\n",
}


def value_of(source: str, name: str = "r") -> object:
    view = FileView("walk.py", HEAD + source, Project())
    return Walker(view, "cuda").module_frame(view).find(name)


@pytest.mark.parametrize("name", list(ENDLESS))
def test_a_walk_ends(name):
    """Recursion, endless loops and a flood of branches end a walk; they do not make it fail."""
    view = FileView("walk.py", HEAD + ENDLESS[name], Project())

    assert [trace.failure for trace in traces(view)] == [None] * len(traces(view))


def test_no_mutilated_script_makes_a_walk_fail():
    """Whatever words and lines of real scripts are exchanged, deleted or doubled, the walk only learns less."""
    text = Path(__file__).with_name("variants.txt").read_text(encoding="utf-8")
    sources = [HEAD + part.partition("\n")[2] for part in text.split("=== ")[1:]]
    words = sorted({word for source in sources for word in re.findall(r"[\w.]+\(?\)?", source)})
    pick = random.Random(0)
    parsed = 0
    for _ in range(4000):
        lines = pick.choice(sources).splitlines()
        for _ in range(pick.randint(1, 5)):
            place = pick.randrange(len(lines))
            found = re.findall(r"[\w.]+", lines[place])
            if found and pick.random() < 0.7:
                lines[place] = lines[place].replace(pick.choice(found), pick.choice(words), 1)
            elif len(lines) > 2:
                lines[place] = lines[pick.randrange(len(lines))]
        try:
            view = FileView("walk.py", "\n".join(lines), Project())
        except (SyntaxError, ValueError):
            continue
        parsed += 1
        assert [trace.failure for trace in traces(view) if trace.failure] == [], "\n".join(lines)
    assert parsed > 400


@pytest.mark.parametrize(
    "source",
    [
        "r = x.half() if flag() else x\n",
        "r = x\nif flag():\n    r = x.half()\n",
        "r = x\nfor _ in range(n()):\n    r = r.half()\n",
        "r = x\ntry:\n    r = x.half()\nexcept ValueError:\n    r = x.float()\n",
        "m = nn.Linear(1, 1)\nif flag():\n    m.half()\nr = m.weight\n",
        "def f(a):\n    if a:\n        return x.half()\n    return x\n\nr = f(flag())\n",
        "r = flag() and x.half() or x\n",
        "m = nn.Sequential(nn.Linear(1, 1))\nfor c in m:\n    if isinstance(c, A): c.half()\nr = m[0].weight\n",
        "kw = dict(dtype=torch.float16, **options())\nr = x.to(kw['dtype'])\n",
        "def f(m):\n    if a():\n        m.half()\n\nm = nn.Sequential(nn.Linear(1, 1))\nm.apply(f)\nr = m[0].weight\n",
    ],
)
def test_what_the_run_decides_has_no_single_dtype(source):
    """A tensor that is float16 on one way through the code and float32 on another counts as neither."""
    value = value_of(f"x = torch.ones(2, 2)\n{source}")

    assert not (isinstance(value, Tensor) and (value.low or value.only("float32")))


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        ("r = x.half() if True else x\n", "float16"),
        ("r = x\nif 1 < 2:\n    r = x.half()\n", "float16"),
        ("m = nn.Linear(1, 1)\nif True:\n    m.half()\nr = m.weight\n", "float16"),
        ("def f(a, dtype=torch.bfloat16):\n    return a.to(dtype)\n\nr = f(x)\n", "bfloat16"),
        ("r = x.to({'a': torch.float16, 'b': torch.bfloat16}['b'])\n", "bfloat16"),
        ("with torch.autocast('cuda', dtype=getattr(torch, 'bfloat16')):\n    r = x @ x\n", "bfloat16"),
        ("with torch.autocast('cuda'), torch.autocast('cuda', enabled=False):\n    r = x @ x\n", "float32"),
        ("f = lambda a: a.half()\nr = f(x)\n", "float16"),
        (
            "import functools\nf = functools.partial(torch.Tensor.to, dtype=torch.float16)\nr = x.to(torch.float16)\n",
            "float16",
        ),
        ("xs = []\nfor _ in range(3):\n    xs.append(x.half())\nr = torch.cat(xs)\n", "float16"),
        ("a, (b, c) = 1, (x, x.half())\nr = c\n", "float16"),
        ("class A:\n    def __init__(self):\n        self.t = x.half()\n\nr = A().t\n", "float16"),
        ("m = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)]).half()\nr = m[1].weight\n", "float16"),
        ("r = next(nn.Linear(1, 1).bfloat16().parameters())\n", "bfloat16"),
        ("kw = dict(dtype=torch.float16)\nr = nn.Linear(1, 1, **kw).weight\n", "float16"),
        ("kw = dict({'dtype': torch.float16}, dtype=torch.bfloat16)\nr = nn.Linear(1, 1, **kw).weight\n", "bfloat16"),
        (
            "kw = dict(dtype=torch.float16)\nkw.update(dtype=torch.bfloat16)\nr = nn.Linear(1, 1, **kw).weight\n",
            "bfloat16",
        ),
        ("def f(dtype=None):\n    return nn.Linear(1, 1, dtype=dtype)\n\nr = f().weight\n", "float32"),
        ("r = nn.Linear(1, 1).half().state_dict()[name()]\n", "float16"),
        (
            "m = nn.Sequential(nn.ReLU(), nn.Linear(1, 1))\nfor c in m.modules():\n"
            "    if not isinstance(c, nn.Linear):\n        continue\n    c.half()\nr = m[1].weight\n",
            "float16",
        ),
        (
            "m = nn.Sequential(nn.BatchNorm1d(1))\nfor c in m.half():\n"
            "    if isinstance(c, nn.modules.batchnorm._BatchNorm):\n        c.float()\nr = m[0].weight\n",
            "float32",
        ),
        (
            "class A(nn.Linear):\n    pass\n\nm = nn.Sequential(A(1, 1))\nfor n, c in m.named_children():\n"
            "    if isinstance(c, A):\n        c.half()\nr = m[0].weight\n",
            "float16",
        ),
    ],
)
def test_what_the_text_decides_is_followed(source, dtype):
    """Constants, containers, closures, attributes and nested regions lead to one dtype where the text fixes it."""
    value = value_of(f"x = torch.ones(2, 2)\n{source}")

    assert isinstance(value, Tensor)
    assert value.only(dtype)
