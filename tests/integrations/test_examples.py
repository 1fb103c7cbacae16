"""The example of each stack runs on a CPU, learns, and says how many steps were skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integrations, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "with_accelerate": "accelerate",
    "with_deepspeed": "deepspeed",
    "with_fabric": "lightning",
    "with_fsdp": "sklearn",
    "with_lightning": "lightning",
    "with_quantized": "bitsandbytes",
    "with_transformers": "transformers",
    "convert_for_inference": "safetensors",
}


def run(name: str) -> str:
    """What the example prints."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if name == "with_fsdp" else []
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, str(EXAMPLES / f"{name}.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("name", [name for name in NEEDS if name.startswith("with_")])
def test_a_stacks_example_learns(name):
    """The last line has the loss, far below the 2.3 of guessing among ten digits."""
    pytest.importorskip(NEEDS[name], reason=f"extra: {NEEDS[name]}")
    found = re.search(r"^loss (\d+\.\d+), .*", run(name), re.MULTILINE)
    assert found is not None
    assert float(found[1]) < 0.5


def test_the_conversion_loses_no_image():
    """float32 and fp16 have the same share of test images right, and what was kept is named with its reason."""
    pytest.importorskip("safetensors", reason="extra: convert")
    said = run("convert_for_inference")
    shares = re.findall(r"^(float32|fp16): (\d+\.\d+)%", said, re.MULTILINE)
    assert [kind for kind, _ in shares] == ["float32", "fp16"]
    assert abs(float(shares[0][1]) - float(shares[1][1])) <= 0.34  # one image of 297
    assert "float32: 1: policy: layer_norm" in said


def test_every_example_of_a_stack_is_run_and_linked():
    """A new `with_*.py` has to be in the table, and in the page of the integrations."""
    names = {path.stem for path in EXAMPLES.glob("with_*.py")}
    assert names == {n for n in NEEDS if n.startswith("with_")}
    page = (EXAMPLES.parent / "docs" / "integrations.md").read_text(encoding="utf-8")
    assert {name for name in names if f"(../examples/{name}.py)" not in page} == set()
