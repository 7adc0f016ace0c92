"""Policies of earlier versions, as they were saved, act as they did."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from acme_quant import kernels
from acme_quant.policy.quantized_policy import QuantizedPolicy

# Written by commit 679f436: NAME.aq, and NAME.npz with `rows` and their `actions`.
SAVED = sorted(pathlib.Path(__file__).with_name("data").glob("*.aq"))


def test_there_are_saved_policies() -> None:
    assert [path.stem for path in SAVED] == ["conv_int8", "nested7_int4_8bit"]


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
@pytest.mark.parametrize("isa", kernels.ISAS)
def test_a_policy_saved_by_an_earlier_version_acts_the_same_to_the_bit(
    path: pathlib.Path, isa: str
) -> None:
    before, recorded = kernels.isa(), np.load(path.with_suffix(".npz"))
    kernels.select_isa(isa)
    try:
        actions = np.empty_like(recorded["actions"])
        QuantizedPolicy.load(path).run_rows(recorded["rows"], actions)
    finally:
        kernels.select_isa(before)
    assert actions.tobytes() == recorded["actions"].tobytes()
