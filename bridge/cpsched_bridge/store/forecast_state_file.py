"""Read and write the forecasts' learned state, with a checksum, atomically.

Decisions do not use the file. If it is damaged, it is discarded and learning restarts.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from cpsched_bridge.store.corruption_checks import (
    CorruptFileContent,
    add_checksum,
    convert_content_errors,
    read_file_head,
    require_regular_file_or_missing,
    verify_checksum,
)
from cpsched_bridge.store.lock_and_request_files import replace_file

MAX_BYTES = 16 << 20
MAX_UNPACKED_BYTES = 64 << 20


def write_forecast_state(path: Path, kept: Any) -> None:
    """Replace the stored state with `kept`. Raise `OSError`, with the file unchanged."""
    packed = add_checksum(zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), 6))
    if len(packed) > MAX_BYTES:
        raise OSError(f"size of {len(packed):,} bytes: must be at most {MAX_BYTES:,} bytes")
    replace_file(path, packed)


def read_forecast_state(path: Path) -> Any:
    """Return the stored state, or None if there is no file.

    Raise `CorruptFileContent` or `OSError`.
    """
    require_regular_file_or_missing(path)
    try:
        packed = read_file_head(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(packed) > MAX_BYTES:
        raise CorruptFileContent(f"is longer than {MAX_BYTES:,} bytes")
    with convert_content_errors():
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(verify_checksum(packed), MAX_UNPACKED_BYTES)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise CorruptFileContent("the compressed data has the wrong length")
        return json.loads(text)
