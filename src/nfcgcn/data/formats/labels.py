"""Read labels and the given split from the cells of their columns."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nfcgcn.data.formats.gathering import MOST_CATEGORIES, NOT_A_NUMBER, to_numbers
from nfcgcn.data.formats.table import MISSING, Cells
from nfcgcn.errors import GraphError, NFCWarning, counted, option
from nfcgcn.graph import Ints, Split

FEW = 10
"""Up to this many classes are always accepted."""
SEPARATORS = (";", "|", ",")
"""What stands between classes where a cell names several."""
PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_NUMBERS = {"train": 1, "val": 2, "test": 3}


def learn_classes(cells: Cells, where: str) -> tuple[str, ...] | None:
    """Return the classes in order, numbers by value and texts alphabetically; None if no row has a label."""
    return choose_classes(Counter(name for name in class_texts(cells) if name is not None), where)


def choose_classes(counts: Counter[str], where: str) -> tuple[str, ...] | None:
    """Return the classes in order, from how often each occurs; see :func:`learn_classes`."""
    if not counts:
        return None
    refuse_several(counts, where)
    total = counts.total()
    numbers = to_numbers(list(counts))
    numeric = bool(np.isfinite(numbers).all())
    whole = numeric and bool((numbers == np.floor(numbers)).all())
    # Numbers that mean classes occur many times; years or counts occur less often.
    most = min(max(FEW, total // (8 if numeric else 2)), MOST_CATEGORIES if whole or not numeric else FEW)
    if len(counts) > most:
        if numeric:
            raise GraphError(
                f"{where} holds {len(counts)} different numbers in {total} rows: it looks like a regression target; "
                "nfcgcn learns classes, so sort the numbers into a few, or choose another column with "
                f"{option('label')}"
            )
        raise GraphError(
            f"{where} holds {len(counts)} different texts in {total} rows, too many to be classes; "
            f"choose another column with {option('label')}"
        )
    if len(counts) == 1:
        raise GraphError(
            f"every label in {where} is '{next(iter(counts))}': there is nothing to tell apart; "
            f"choose another column with {option('label')}"
        )
    _warn_of_missing(counts, where)
    order = np.argsort(numbers, kind="stable") if numeric else np.argsort(np.array(list(counts), dtype=object))
    classes = list(counts)
    return tuple(classes[i] for i in order)


def _warn_of_missing(counts: Counter[str], where: str) -> None:
    """Warn of classes whose name often means that there is none: in a column of numbers it would be an empty cell."""
    doubtful = [f"'{name}' ({counted(counts[name], 'row')})" for name in sorted(counts) if name in NOT_A_NUMBER]
    if doubtful:
        warnings.warn(
            f"{where} has the class {' and '.join(doubtful)}; empty these cells if they mean that there is no label",
            NFCWarning,
            stacklevel=2,
        )


def refuse_several(counts: Counter[str], where: str) -> None:
    """Refuse cells that name several classes, such as "a;b": their parts come back in other cells."""
    for separator in SEPARATORS:
        parts = {name: {part.strip() for part in name.split(separator)} for name in counts}
        several = [name for name, some in parts.items() if len(some) > 1]
        often = Counter(part for some in parts.values() for part in some)
        # A comma also stands within names: there all of the parts must be classes of their own.
        if separator == ",":
            telling = [name for name in several if all(part in counts for part in parts[name])]
        else:
            telling = [name for name in several if any(often[part] > 1 for part in parts[name])]
        if telling:
            rows = counted(sum(counts[name] for name in several), "row")
            raise GraphError(
                f"{where} names several classes in {rows}, such as '{telling[0][:40]}'; nfcgcn learns one class "
                f"per node: keep the main one, replace '{separator}' by + to make each combination a class, or train "
                "one model per class on a column of yes and no"
            )


def encode_labels(cells: Cells, classes: Sequence[str], where: str) -> Ints:
    """Return the class of each row, or -1 for none; an unknown class counts as none, with a warning."""
    place = {name: i for i, name in enumerate(classes)}
    names = class_texts(cells)
    labels = np.array([-1 if name is None else place.get(name, -1) for name in names], np.int64)
    strange = sorted({name for name in names if name is not None and name not in place})
    if strange:
        warnings.warn(
            f"{where} holds {len(strange)} classes that training did not see, read as no label: {listed(strange)}",
            NFCWarning,
            stacklevel=2,
        )
    return labels


def class_texts(cells: Cells) -> list[str | None]:
    """Return each cell as the name of a class; whole numbers are written without a point, "1.0" as "1"."""
    tidy: dict[str | None, str | None] = {None: None}
    names = []
    for cell in cells.tolist():
        if cell not in tidy:
            tidy[cell] = _tidy(cell)
        names.append(tidy[cell])
    return names


def _tidy(cell: str) -> str | None:
    text = cell.strip()
    if text in MISSING:
        return None
    if re.fullmatch(r"[+-]?\d{1,300}(\.0*)?", text, re.ASCII):
        return str(int(text.partition(".")[0]))
    return text


def encode_split(cells: Cells, labels: Ints, where: str) -> Split | None:
    """Return the split that a column describes; rows without a label are left out of it."""
    return split_of(encode_parts(cells, where), labels >= 0, where)


def encode_parts(cells: Cells, where: str, *, done: int = 0) -> npt.NDArray[np.int8]:
    """Return the part of each row: 1 for train, 2 for val, 3 for test, 0 for none; `done` rows came before."""
    parts = np.zeros(len(cells), np.int8)
    for row, cell in enumerate(cells.tolist()):
        text = "" if cell is None or cell in MISSING else cell.strip().lower()
        if text and text not in PARTS:
            raise GraphError(
                f"{where} says '{cell[:40]}' in row {done + row + 1}; a split is train, val, test or nothing: "
                f"correct it, or leave the column out with {option('ignore')}"
            )
        parts[row] = _NUMBERS[PARTS[text]] if text else 0
    return parts


def split_of(parts: npt.NDArray[np.int8], labelled: npt.NDArray[np.bool_], where: str) -> Split | None:
    """Return the split that the parts of all rows make; rows without a label are left out of it."""
    if not parts.any() or not labelled.any():
        return None
    lost = int(((parts > 0) & ~labelled).sum())
    if lost:
        warnings.warn(
            f"{lost} of the rows that {where} puts into a part of the split have no label and were left out of it",
            NFCWarning,
            stacklevel=3,
        )
    train, val, test = (np.flatnonzero((parts == number) & labelled) for number in _NUMBERS.values())
    return Split(train, val, test)


SHOWN = 3
"""Names that a message shows."""


def listed(names: Sequence[str], most: int = SHOWN, *, count: int | None = None) -> str:
    """Write the first names in quotes, and the number of the others, of `count` if these are not all."""
    count = len(names) if count is None else count
    more = f" and {count - most} more" if count > most else ""
    return ", ".join(f"'{name[:40]}'" for name in names[:most]) + more
