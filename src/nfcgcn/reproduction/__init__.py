"""The tables and figures of the paper: declared, run, kept and judged."""
