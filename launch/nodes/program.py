"""The whole graph of a run: every node and who talks to whom.

    learner --fp32--> quantizer --payload--> actors, evaluator
       ^                                        |
       +------------- replay <------------------+        counter, coordinator

With `--actor=acme` the actors and the evaluator are Acme's own and ask the learner;
there is no quantizer then. Nothing runs in here: nodes are made in their own process.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import launchpad as lp
from launchpad.nodes.python.local_multi_processing import PythonProcess

from acme_quant.launch.checkpoints import replay_saver
from acme_quant.launch.nodes import makers
from acme_quant.launch.nodes.replay import ReplayNode
from acme_quant.launch.settings.config import Run

# Who ends after the others, in this order: the evaluator has a last look at the policy,
# the quantizer fetches the learner's last one, the learner saves what all others have
# counted, and the rest answer calls until nobody is left who makes any.
LATER = (
    ("evaluator",),
    ("quantizer",),
    ("learner",),
    ("replay", "counter", "coordinator"),
)

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    # An actor on an accelerator would take memory from the learner.
    "CUDA_VISIBLE_DEVICES": "",
}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1"}


@dataclasses.dataclass(frozen=True)
class Program:
    """A Launchpad program and the handles that the launcher itself calls."""

    program: lp.Program
    coordinator: Any
    quantizer: Any

    def resources(self) -> dict[str, PythonProcess]:
        """Returns the environment of each group's processes."""
        return {
            label: PythonProcess(
                env=_QUIET if label == "learner" else {**_QUIET, **_ONE_THREAD}
            )
            for label in self.program.groups
        }


def make_program(run: Run, spec: Any, graph: Any, started: float) -> Program:
    """Returns the program of a run.

    Args:
      run: the run's configuration.
      spec: acme.specs.EnvironmentSpec of its environment.
      graph: the lowered policy; None with Acme's own actors.
      started: time.time() at launch.
    """
    config, program = run.config, lp.Program("acme_quant")

    def add(group: str, node: Any) -> Any:
        with program.group(group):
            return program.add_node(node)

    make_tables = functools.partial(makers.make_tables, run, spec)
    replay = add("replay", ReplayNode(make_tables, replay_saver.folder_of(run)))
    counter = add("counter", lp.CourierNode(makers.make_counter, run))
    coordinator = add(
        "coordinator",
        lp.CourierNode(makers.make_coordinator, counter, config.max_actor_steps),
    )
    learner = add(
        "learner",
        lp.CourierNode(makers.make_learner, run, spec, graph, replay, counter, started),
    )
    quantizer = None
    if graph is not None:
        quantizer = learner
        if not config.colocate_quantizer:
            quantizer = add(
                "quantizer",
                lp.CourierNode(
                    makers.make_quantizer, run, graph, learner, counter, started
                ),
            )
    policies = quantizer or learner
    if config.evaluate_every:
        add(
            "evaluator",
            lp.CourierNode(
                makers.make_evaluator, run, spec, graph, policies, counter, started
            ),
        )
    for index in range(config.num_actors):
        add(
            "actor",
            lp.CourierNode(
                makers.make_actor, run, spec, index, policies, replay, counter, started
            ),
        )
    return Program(program, coordinator, quantizer)
