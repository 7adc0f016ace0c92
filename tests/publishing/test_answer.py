"""An answer of the publisher, as a client takes it off the wire."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from acme_quant.publishing import answer

BYTES = np.zeros(3, np.uint8)


@pytest.mark.parametrize(
    "came",
    [
        (1, 2, answer.UNCHANGED, None),
        [1, 2, answer.SHARED_MEMORY, [3, 4]],
        answer.Answer(1, 2, answer.ARRAY, BYTES),
    ],
)
def test_an_answer_is_read_however_the_wire_brings_it(came: Any) -> None:
    found = answer.checked(came)
    assert found.version == 1 and found.learner_step == 2 and found.kind == came[2]


@pytest.mark.parametrize(
    "came",
    [None, (1, 2, "unchanged"), (True, 2, "unchanged", None), (1, 2, "array", b"x")],
)
def test_what_is_no_answer_is_refused_in_a_sentence(came: Any) -> None:
    with pytest.raises(ValueError, match="expected an answer"):
        answer.checked(came)


def test_a_client_does_not_import_the_publisher() -> None:
    code = (
        "import sys, acme_quant.publishing.client; "
        "assert 'acme_quant.publishing.publisher' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
