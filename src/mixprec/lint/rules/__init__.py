"""One file per rule, `mpNNN_name.py`, found by listing this folder; nothing is registered by hand."""
