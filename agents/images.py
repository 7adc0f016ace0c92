"""Which observations are images: told before a run starts, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dm_env import specs

MOST_CHANNELS = 16
# Fewer rows of floats are a table; bytes are an image of any size.
LEAST_SIDE = 16


def is_image(field: Any) -> bool:
    """Returns whether a spec or an array is an image [..., height, width, channels].

    Args:
      field: one observation without a batch dimension, uint8 or float32.
    """
    shape = tuple(getattr(field, "shape", ()))
    if len(shape) != 3:
        return False
    large = min(shape[:2]) >= LEAST_SIDE and shape[2] <= MOST_CHANNELS
    return field.dtype == "uint8" or large


def check_channels(observations: Any) -> None:
    """Refuses images whose channels come first.

    Raises:
      ValueError: naming the first.
    """
    for field in fields(observations):
        if len(field.shape) != 3:
            continue
        channels, height, width = field.shape
        if channels <= MOST_CHANNELS < min(height, width):
            raise ValueError(
                f"expected images [height, width, channels], got {field.name} of shape "
                f"{tuple(field.shape)}, whose channels come first: have the "
                "environment return np.moveaxis(image, 0, -1)."
            )


def needs_encoder(observations: Any) -> bool:
    """Returns whether there are bytes, or an image, in a nest of specs."""
    return any(f.dtype == "uint8" or is_image(f) for f in fields(observations))


def fields(observations: Any) -> Iterator[specs.Array]:
    """Yields the leaves of a nest of specs, in dm-tree's order."""
    import tree

    yield from tree.flatten(observations)
