"""What a publisher answers to "newer than v?", and how a client checks it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

UNCHANGED = "unchanged"
SHARED_MEMORY = "shared_memory"
ARRAY = "array"
KINDS = (UNCHANGED, SHARED_MEMORY, ARRAY)


class Answer(NamedTuple):
    """One answer; Courier makes a plain tuple of it, which `checked` reads.

    Attributes:
      version: The publisher's, or the client's own if there is none newer.
      learner_step: The learner's, as far as the publisher knows.
      kind: One of KINDS.
      body: None of 'unchanged', the name of a block of 'shared_memory', uint8 [bytes]
        of 'array'.
    """

    version: int
    learner_step: int
    kind: str
    body: Any


def checked(answer: object) -> Answer:
    """Returns what came off the wire as an Answer.

    Raises:
      ValueError: It is not one.
    """
    if isinstance(answer, (tuple, list)) and len(answer) == 4:
        found = Answer(*answer)
        numbers = type(found.version) is int and type(found.learner_step) is int
        array = isinstance(found.body, np.ndarray)
        if numbers and found.kind in KINDS and (array or found.kind != ARRAY):
            return found
    raise ValueError(
        "expected an answer (version, learner step, kind, body) of the quantizer, "
        f"got {str(answer)[:80]}."
    )
