"""How a tensor lies in memory."""

from __future__ import annotations

from enum import Enum


class Layout(Enum):
    """Order of a dense tensor's axes in memory, outermost first."""

    ROW = "row"
    """As the logical shape says (NCHW for an image)."""
    CHANNELS_LAST = "channels_last"
    """Axis 1 moved to the end (NHWC for an image). Only for rank 3 and more."""
