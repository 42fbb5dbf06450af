"""The decision core: values in, values out; no clock, no files, no sockets."""
