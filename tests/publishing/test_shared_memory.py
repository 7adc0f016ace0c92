from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from acme_quant.publishing import shared_memory
from acme_quant.publishing.shared_memory import Block, BlockGone, open_block

pytestmark = pytest.mark.skipif(
    not shared_memory.host_identity(), reason="this host has no memory files"
)

CONTENT = memoryview(np.arange(100_000, dtype=np.uint32)).cast("B")


def descriptors() -> int:
    """Returns how many memory files are open: other tests' threads open other files."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:")
        except FileNotFoundError:  # The folder's own descriptor.
            continue
    return count


def python(code: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )


def test_another_process_reads_what_was_written() -> None:
    block = Block(CONTENT)
    child = python(
        "import zlib; from acme_quant.publishing import shared_memory as s;"
        f"print(zlib.crc32(s.open_block({block.name})), s.host_identity())"
    )
    crc, host = child.communicate(timeout=20)[0].split()
    assert int(crc) == zlib.crc32(CONTENT)
    assert host == shared_memory.host_identity()


def test_nobody_can_write_shrink_or_grow_a_block() -> None:
    block = Block(CONTENT)
    assert block.view.readonly and open_block(block.name).readonly
    path = f"/proc/{block.name[0]}/fd/{block.name[1]}"
    fd = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.write(fd, b"x")
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 10)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, CONTENT.nbytes * 2)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 0)
    finally:
        os.close(fd)


def test_all_readers_share_one_copy() -> None:
    block = Block(CONTENT)
    views = [open_block(block.name) for _ in range(50)]
    before = private_dirty_kb()
    assert len({bytes(view[-4:]) for view in views}) == 1
    assert all(np.frombuffer(view, np.uint8).any() for view in views)
    # 50 private copies would be 20 MB.
    assert private_dirty_kb() - before < 1000


def private_dirty_kb() -> int:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        lines = dict(line.split(":") for line in file.readlines()[1:])
    return int(lines["Private_Dirty"].split()[0])


def test_a_reader_keeps_what_it_has_mapped_when_the_block_goes() -> None:
    block = Block(CONTENT)
    view = open_block(block.name)
    block.close()
    assert view == CONTENT and block.view == CONTENT


def test_a_closed_block_is_gone() -> None:
    block = Block(CONTENT)
    block.close()
    block.close()
    with pytest.raises(BlockGone):
        open_block(block.name)


def test_nothing_stays_open_when_the_last_reference_goes() -> None:
    gc.collect()
    before = descriptors()
    for _ in range(20):
        block = Block(CONTENT)
        open_block(block.name)
    del block
    gc.collect()
    assert descriptors() <= before


def test_kill_9_leaves_nothing_behind_and_readers_unharmed() -> None:
    child = python(
        "import time; from acme_quant.publishing.shared_memory import Block\n"
        "block = Block(memoryview(bytes(range(256)) * 4096))\n"
        "print(*block.name, flush=True); time.sleep(60)"
    )
    name = tuple(map(int, child.stdout.readline().split()))
    view = open_block(name)
    names_before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=10)
    assert bytes(view) == bytes(range(256)) * 4096
    with pytest.raises(BlockGone):
        open_block(name)
    if names_before:
        assert set(os.listdir("/dev/shm")) <= names_before


@pytest.mark.parametrize(
    "name",
    [
        None,
        3,
        "1/2",
        (1,),
        (1, 2, 3),
        ("1", "2"),
        (-1, 3),
        (1.0, 3),
        (True, 3),
        (1, 2**40),
    ],
    ids=repr,
)
def test_a_name_that_is_not_one_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="expected a block's"):
        open_block(name)


def test_a_hostile_name_is_refused_without_waiting_on_it(tmp_path: object) -> None:
    fifo = os.path.join(str(tmp_path), "fifo")
    os.mkfifo(fifo)
    reader, _ = os.pipe()
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    file = os.open(os.path.join(str(tmp_path), "file"), os.O_CREAT | os.O_RDWR)
    start = time.monotonic()
    for fd in (os.open(fifo, os.O_RDWR), reader, unsealed, file):
        with pytest.raises(BlockGone):
            open_block((os.getpid(), fd))
        os.close(fd)
    assert time.monotonic() - start < 5


def test_an_empty_block_is_refused() -> None:
    import fcntl

    fd = os.memfd_create("empty", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, shared_memory.F_ADD_SEALS, shared_memory.SEALS)
    with pytest.raises(ValueError, match="bytes, got 0"):
        open_block((os.getpid(), fd))
    os.close(fd)
