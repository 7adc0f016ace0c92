"""One physical copy of a policy for every process of a host, read-only for all of them.

A block is an anonymous memory file (`memfd_create`): filled once, then sealed by the
kernel against writing, growing and shrinking, and read by others through
`/proc/<pid>/fd/<fd>`. It has no name in any file system and lives exactly as long as
somebody holds it, so nothing is left behind however a run ends, `kill -9` included.

A reader trusts nothing but the seals: they promise that the bytes it has checked stay
the bytes it runs, and that no page of them goes away (SIGBUS).
"""

from __future__ import annotations

import functools
import mmap
import os
import sys
from typing import Any, Tuple

# <linux/fcntl.h>; the fcntl module of CPython 3.9 may lack them.
F_ADD_SEALS = 1033
F_GET_SEALS = 1034
SEALS = 1 | 2 | 4 | 8  # F_SEAL_SEAL, _SHRINK, _GROW and _WRITE.

MAX_BLOCK_BYTES = 1 << 31


class BlockGone(OSError):
    """The block of that name is no longer, or not yet, there to be read."""


@functools.lru_cache(maxsize=1)
def host_identity() -> str:
    """Returns a text equal in two processes that can open each other's blocks.

    It names the boot of the kernel, the process namespace that gives `/proc/<pid>` its
    meaning, and the user. It is empty where there are no blocks: not on Linux.
    """
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    return f"{boot}/{namespace}/{os.geteuid()}"


class Block:
    """A sealed copy of a buffer that other processes of the host can map.

    Attributes:
      name: What a peer needs to open it: (process id, file descriptor).
      view: The bytes, read-only. It outlives `close` for as long as it is referenced.
    """

    def __init__(self, content: memoryview) -> None:
        """Copies `content` once, into memory the kernel then seals.

        Raises:
          OSError: The kernel grants no memory file of that size.
        """
        import fcntl  # Absent where there are no blocks.

        self._fd = os.memfd_create(
            "acme_quant_policy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        )
        try:
            _write_all(self._fd, content)
            fcntl.fcntl(self._fd, F_ADD_SEALS, SEALS)
            self.view = _map(self._fd, content.nbytes)
        except BaseException:
            os.close(self._fd)
            raise
        self.name: Tuple[int, int] = (os.getpid(), self._fd)

    def close(self) -> None:
        """Lets go of the name; readers keep what they have mapped."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Closes a block nobody holds any more."""
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def open_block(name: Any) -> memoryview:
    """Maps the block of that name, from a sender nobody vouches for.

    Args:
      name: (process id, file descriptor), as in `Block.name`.

    Returns:
      Its bytes, read-only and immutable; unmapped when nothing refers to them.

    Raises:
      BlockGone: The publisher has let go of it, or is about to seal it; ask again.
      ValueError: The name is not one, or stands for something else than a block.
      OSError: This process may not look at the publisher's files.
    """
    import fcntl  # Absent where there are no blocks.

    pid, number = _checked_name(name)
    try:
        # Non-blocking: a hostile name must not make us wait on a pipe.
        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError:
        raise
    except OSError as error:
        raise BlockGone(f"expected block {pid}/{number}, found none.") from error
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise ValueError(
                f"expected a block of user {os.geteuid()}, got one of {status.st_uid}."
            )
        try:
            seals = fcntl.fcntl(fd, F_GET_SEALS)
        except OSError as error:
            raise BlockGone(f"expected block {pid}/{number} to be one.") from error
        if seals & SEALS != SEALS:
            raise BlockGone(f"expected block {pid}/{number} to be sealed.")
        if not 0 < status.st_size <= MAX_BLOCK_BYTES:
            raise ValueError(
                f"expected a block of 1 to {MAX_BLOCK_BYTES} bytes, got "
                f"{status.st_size}."
            )
        return _map(fd, status.st_size)
    finally:
        os.close(fd)


def _checked_name(name: Any) -> Tuple[int, int]:
    valid = isinstance(name, (tuple, list)) and len(name) == 2
    if not valid or not all(type(part) is int and 0 <= part < 1 << 31 for part in name):
        raise ValueError(
            f"expected a block's (process id, descriptor), got {str(name)[:80]}."
        )
    return name[0], name[1]


def _write_all(fd: int, content: memoryview) -> None:
    content = content.cast("B")
    done = 0
    while done < content.nbytes:
        done += os.write(fd, content[done:])


def _map(fd: int, nbytes: int) -> memoryview:
    # Private and never written is shared too, and unlike MAP_SHARED not refused for a
    # sealed file by kernels before 6.7.
    content = mmap.mmap(fd, nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    return memoryview(content)
