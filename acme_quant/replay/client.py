"""A connection to a Reverb server that does not import TensorFlow's Python.

`import reverb` imports all of TensorFlow: seconds of start-up and hundreds of
megabytes in every actor process. Writing items needs none of it, only Reverb's own
binding `libpybind.so` and the C++ core library it links against. Both are loaded
here by path; where that fails, the ordinary import takes over.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import logging
import pathlib
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading

# Under this name `import reverb`, should it come later in the same process, finds
# the binding already loaded; pybind11 refuses to register its types twice.
_BINDING = "reverb.libpybind"
_CORE_LIBRARY = "libtensorflow_framework.so.2"
_POLL_S = 2


class ReplayUnavailable(ConnectionError):
    """The replay server does not answer."""


def load_binding() -> ModuleType:
    """Returns Reverb's C++ binding, importing TensorFlow's Python only if it must.

    Raises:
      ImportError: if Reverb is not installed.
    """
    if _BINDING in sys.modules:
        return sys.modules[_BINDING]
    if "reverb" not in sys.modules:
        try:
            return _load_alone()
        except (ImportError, OSError) as error:
            logging.warning(
                "Reverb's binding does not load by itself (%s); importing all of "
                "Reverb and TensorFlow instead.",
                error,
            )
    return importlib.import_module("reverb.pybind")


def _package_folder(name: str) -> pathlib.Path:
    """Returns where a package is installed, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"Package {name} is not installed.")
    return pathlib.Path(spec.submodule_search_locations[0])


def _load_alone() -> ModuleType:
    """Loads the core library, which the loader would not find, then the binding."""
    ctypes.CDLL(str(_package_folder("tensorflow") / _CORE_LIBRARY))
    path = str(_package_folder("reverb") / "libpybind.so")
    loader = importlib.machinery.ExtensionFileLoader(_BINDING, path)
    spec = importlib.util.spec_from_file_location(_BINDING, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[_BINDING] = module
    return module


class ReplayClient:
    """Opens writers on a Reverb server, for actors. Pickles as its address.

    Attributes:
      server_address: "host:port" of the server.
    """

    def __init__(self, server_address: str) -> None:
        """Connects lazily: the first call that needs the server finds it."""
        self.server_address = server_address
        self._binding = load_binding()
        self._client = self._binding.Client(server_address)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Pickles the address; the connection is made anew."""
        return ReplayClient, (self.server_address,)

    def answers(self, timeout_s: int = _POLL_S) -> bool:
        """Returns whether the server answers within `timeout_s` whole seconds."""
        try:
            self._client.ServerInfo(timeout_s)
        except RuntimeError:
            return False
        return True

    def trajectory_writer(
        self,
        chunk_length: int,
        keep_alive_rows: int,
        timeout_s: float,
        stop: threading.Event | None = None,
    ) -> Any:
        """Returns Reverb's own C++ writer, which checks items against signatures.

        Args:
          chunk_length: rows that are compressed and sent together.
          keep_alive_rows: rows that a later item may still refer to.
          timeout_s: seconds to wait for a server that is not there yet.
          stop: ends the wait when set.

        Raises:
          ReplayUnavailable: if the server did not answer in this time, or until `stop`.
        """
        options = self._binding.ConstantChunkerOptions(
            chunk_length, max(keep_alive_rows, chunk_length)
        )
        start = time.monotonic()
        while True:
            try:
                return self._client.NewTrajectoryWriter(options, 1000 * _POLL_S)
            except RuntimeError as error:
                waited_s = time.monotonic() - start
                stopped = stop is not None and stop.is_set()
                if stopped or waited_s >= timeout_s:
                    raise ReplayUnavailable(
                        f"The replay server at {self.server_address} did not answer "
                        f"for {waited_s:.0f} s: {error}."
                    ) from error


def connect(server: Any) -> ReplayClient:
    """Returns a client of `server`: an address, a `reverb.Client` or itself one.

    A LocalReplay of this process is its own client.
    """
    if hasattr(server, "answers"):
        return server
    return ReplayClient(getattr(server, "server_address", server))
