"""Doctor: controlled experiments on an unmodified script, ending in a cause."""
