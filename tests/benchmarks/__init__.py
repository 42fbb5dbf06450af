"""Speed and memory, measured and printed beside the reference figures; nothing here is asserted."""
