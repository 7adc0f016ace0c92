"""`acme-quant train`: checks the request, launches the program, sees it to its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from acme_quant.launch import prepare
from acme_quant.launch.config import UsageError


def main(argv: Sequence[str]) -> int:
    """Trains as the flags say.

    Args:
      argv: program name and flags.

    Returns:
      0 when the run reached its steps, 1 when a node failed, 2 when the request cannot
      be run (one sentence says why, before any process starts), 130 on Ctrl-C.
    """
    # Before TensorFlow is imported, and for every node: no start-up chatter, and no
    # process that compiles TensorFlow's sources anew (12 s instead of 4).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.time()
    try:
        run, launch_type = prepare.parse(argv)
        spec, graph = prepare.prepare(run)
    except prepare.HelpRequested as text:
        print(text)
        return 0
    except UsageError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 2
    from acme_quant.launch import lifecycle

    return lifecycle.launch(run, launch_type, spec, graph, started)
