"""The tables and figures of the paper: declared as data, run, stored and compared with what the paper prints.

In the order of use: `load_experiment` reads a declaration, `plan` lists its runs, `run` does those that are missing and
stores them, `read_ledger` and `select` get them back, `compare` puts them beside the paper's numbers, and
`write_report` makes a page of it all.
"""

from __future__ import annotations

from nfcgcn.reproduction.comparison import compare, select
from nfcgcn.reproduction.experiment import EXPERIMENTS, Experiment, load_experiment
from nfcgcn.reproduction.ledger import Record
from nfcgcn.reproduction.ledger import read as read_ledger
from nfcgcn.reproduction.page import write_report
from nfcgcn.reproduction.runner import Outcome, Progress, choose_jobs, remaining, run
from nfcgcn.reproduction.schedule import Task, estimate, plan
from nfcgcn.reproduction.tables import Table, tables

__all__ = [  # noqa: RUF022  (the order of use)
    "EXPERIMENTS",
    "Experiment",
    "load_experiment",
    "Task",
    "plan",
    "estimate",
    "remaining",
    "choose_jobs",
    "Progress",
    "Outcome",
    "run",
    "Record",
    "read_ledger",
    "select",
    "compare",
    "Table",
    "tables",
    "write_report",
]
