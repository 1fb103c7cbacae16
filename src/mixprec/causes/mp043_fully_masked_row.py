"""MP043: a row of attention scores is masked completely, and softmax of only minus infinity is NaN."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP043",
    name="fully-masked-row",
    title="A row of attention scores is masked completely, and softmax of only minus infinity is NaN.",
    symptom="NaN appears in some batches, mostly those with padding, in any dtype.",
    evidence="The output of softmax or attention is NaN exactly in the rows in which every score is minus infinity.",
    fix="Leave one place open in such rows, or mask with torch.finfo(dtype).min once.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/103749",
        "https://github.com/pytorch/pytorch/issues/110213",
        "https://github.com/pytorch/pytorch/issues/119131",
        "https://github.com/pytorch/pytorch/issues/125674",
        "https://github.com/pytorch/pytorch/issues/178251",
    ),
    related=("MP042", "MP044", "MP052"),
)
