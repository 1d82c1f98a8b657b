"""``python -m nfcgcn``: the command line."""

from nfcgcn.cli import run

run()
