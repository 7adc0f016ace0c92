"""The whole graph of a run as a Launchpad program: `NODES`, and who talks to whom.

    learner --fp32--> quantizer --payload--> actors, evaluator
       ^                                        |
       +------------- replay <------------------+        counter, coordinator

Nothing runs in here: nodes are made in their own process, by the maker that their entry
in `NODES` names.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import launchpad as lp
from launchpad import address as lp_address
from launchpad.nodes import base
from launchpad.nodes.python.local_multi_processing import PythonProcess

from acme_quant.launch import nodes
from acme_quant.launch.nodes import Node, stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.peers import serving

# The last one: a process's title does not overwrite its environment in /proc.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1", "SPT_NOENV": "1"}
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
# A node with few threads on an accelerator would take memory from the learner.
_NO_ACCELERATOR = {"CUDA_VISIBLE_DEVICES": ""}


@dataclasses.dataclass(frozen=True)
class Program:
    """A Launchpad program, and the handle that the launcher itself calls."""

    program: lp.Program
    coordinator: base.Handle

    def resources(self) -> dict[str, PythonProcess]:
        """Returns the environment of each group's processes."""
        return {
            name: PythonProcess(env=_environment(nodes.kind_of(name)))
            for name in self.program.groups
        }


def make_program(context: Context) -> Program:
    """Returns the program of a run; its `context` has no peers yet."""
    program, handles = lp.Program("acme_quant"), {}
    config = context.run.config
    for node in nodes.nodes_of(config):
        needed = {"policies": nodes.policies_of(config)}
        peers = {
            n: handles[p] for n in node.needs if (p := needed.get(n, n)) in handles
        }
        for index in range(node.count(config)):
            with program.group(node.name):
                launched = _LAUNCHED[node.protocol](
                    node, _own(context, node, index), peers
                )
                handles[node.name] = program.add_node(launched)
    return Program(program, handles["coordinator"])


def _own(context: Context, node: Node, index: int) -> Context:
    """Returns the context of one node: what it needs not, its process need not read."""
    return dataclasses.replace(
        context,
        name=f"{node.name}_{index}" if node.numbered else node.name,
        index=index,
        spec=context.spec if "spec" in node.needs else None,
        graph=context.graph if "graph" in node.needs else None,
    )


def _environment(node: Node) -> dict[str, str]:
    if node.threads is None:
        return _QUIET
    return {**_QUIET, **dict.fromkeys(_THREADS, str(node.threads)), **_NO_ACCELERATOR}


def _make(make: str, context: Context, **peers: object) -> object:
    """Makes a node, in its own process."""
    if stopping.is_own_process():
        stopping.stop_on_word()
        _entitle(context)
    context = dataclasses.replace(context, stop=lp.stop_event(), **peers)
    return pkgutil.resolve_name(make)(context)


def _entitle(context: Context) -> None:
    """Names the node, for `ps`, `top` and the like."""
    import setproctitle

    setproctitle.setproctitle(f"acme-quant: {context.name} of {context.run.workdir}")


@runtime_checkable
class Front(Protocol):
    """A node that serves another object than itself."""

    @property
    def served(self) -> object:
        """What peers call."""
        ...

    def run(self) -> None:
        """Runs until the program ends."""
        ...


class CourierNode(lp.CourierNode):
    """Serves what its entry in `NODES` lists, and runs until the program ends."""

    def __init__(self, node: Node, context: Context, peers: dict[str, Any]) -> None:
        """Makes the node in its own process, with what has become of its peers."""
        super().__init__(_make, node.make, context, **peers)
        self._serves: Sequence[str] = node.serves

    def run(self) -> None:
        """Makes, serves and runs the node."""
        instance = self._construct_instance()
        port = lp_address.get_port_from_address(self.courier_address.resolve())
        served = instance.served if isinstance(instance, Front) else instance
        self._server = serving.serve(served, self._serves, port)
        instance.run()


class ReverbHandle(base.Handle[str]):
    """Stands for a Reverb server's address while the program is made.

    Launchpad's own hands out a `reverb.Client`; the import behind it brings TensorFlow
    into every process that holds such a handle. Here a peer gets `host:port` and
    connects as it likes.
    """

    def __init__(self, address: lp_address.Address) -> None:
        """Keeps the address until Launchpad has bound it."""
        self._address = address

    def dereference(self) -> str:
        """Returns `host:port`."""
        return self._address.resolve()


class ReverbNode(lp.PyClassNode):
    """Runs a Reverb server, which serves all that Reverb does."""

    def __init__(self, node: Node, context: Context, peers: dict[str, Any]) -> None:
        """Makes the node in its own process."""
        super().__init__(_make, node.make, context, **peers)
        self._address = lp_address.Address("reverb")
        self.allocate_address(self._address)

    def create_handle(self) -> ReverbHandle:
        """Returns a handle that becomes the server's address."""
        return self._track_handle(ReverbHandle(self._address))

    def run(self) -> None:
        """Makes the server and serves until the program ends."""
        port = lp_address.get_port_from_address(self._address.resolve())
        self._construct_instance().run(port)


_LAUNCHED = {nodes.COURIER: CourierNode, nodes.REVERB: ReverbNode}
