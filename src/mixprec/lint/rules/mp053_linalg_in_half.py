"""Factorisations and Fourier transforms have no 16-bit kernels; which of them autocast lifts depends on the device."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec._policy import CastRule
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Tensor, Trace, held, rule_of, spoken
from mixprec.records import Finding, Severity

SOLVERS = """
    cholesky cholesky_ex cholesky_inverse cholesky_solve cond det eig eigh eigvals eigvalsh inv inv_ex inverse
    ldl_factor logdet lstsq lu lu_factor matrix_rank pinv pinverse qr slogdet solve solve_triangular svd svdvals
    triangular_solve
"""
FOURIER = "fft fft2 fftn ifft ifft2 ifftn irfft irfft2 irfftn rfft rfft2 rfftn hfft ihfft stft"
ORDER = "quantile nanquantile"


class LinalgInHalf(Rule):
    """`torch.linalg.inv(x)`, `torch.det(x)`, `torch.fft.rfft(x)` where `x` has 16 bits."""

    code = "MP053"
    name = "linalg-in-half"
    severity = Severity.ERROR
    title = "A factorisation, Fourier transform or quantile is taken of a 16-bit tensor, which raises."
    why = (
        "PyTorch has no 16-bit kernels for linear algebra. Autocast on CPU lifts most of them to float32; on CUDA it "
        "lifts none."
    )
    bad = """\
import torch


def log_volume(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        return torch.linalg.slogdet(x @ weight)[1]
"""
    good = """\
import torch


def log_volume(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        return torch.linalg.slogdet((x @ weight).float())[1]
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior",
        "https://docs.pytorch.org/docs/stable/fft.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, _calls):
            yield self.finding(view, hit.node, hit.message, fix=self.fix("Convert to float32 first: x.float()."))


def _calls(trace: Trace) -> Iterator[Hit]:
    solvers = {name for word in SOLVERS.split() for name in (word, f"linalg.{word}")}
    fourier = {f"fft.{word}" for word in FOURIER.split()} | {"stft"}
    for event in trace.of(*sorted(solvers), *sorted(fourier), *ORDER.split()):
        tensor = event.tensor()
        if tensor is not None and tensor.low and not _is_lifted(event) and not _may_run(event, tensor, trace):
            yield Hit(event.node, f"{event.op} has no kernel for {spoken(tensor)}.")


def _is_lifted(event: Event) -> bool:
    """Whether the region runs the op in float32, or may."""
    lifts = rule_of(event.op, event.region.device) is CastRule.FP32
    return lifts and event.region.enabled is not False


def _may_run(event: Event, tensor: Tensor, trace: Trace) -> bool:
    """CuFFT takes float16 where the size is a power of two."""
    fourier = event.op.startswith("fft.") or event.op == "stft"
    return fourier and tensor.half and trace.device == "cuda"
