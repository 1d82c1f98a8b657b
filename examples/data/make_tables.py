"""Write the sample tables of this folder: invented papers, the citations between them, and the topics left out.

Nothing here is real: words, venues, years, topics and citations are drawn at random, with a fixed seed. The same script
writes the same bytes on every machine.
"""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

SEED = 0
NUM_PAPERS = 240
TOPICS = {
    "astronomy": ["star", "orbit", "telescope", "galaxy", "comet", "eclipse", "planet", "dust", "crater", "nebula"],
    "botany": ["leaf", "root", "pollen", "seed", "forest", "moss", "petal", "soil", "stem", "canopy"],
    "cooking": ["oven", "yeast", "butter", "flour", "simmer", "spice", "dough", "broth", "pan", "recipe"],
    "geology": ["rock", "fault", "lava", "mineral", "soil", "dust", "quartz", "basin", "crater", "erosion"],
}
COMMON = [
    "method",
    "result",
    "measure",
    "new",
    "large",
    "study",
    "over",
    "model",
    "sample",
    "data",
    "show",
    "small",
    "early",
    "change",
    "rate",
    "two",
]
VENUES = ["Annals", "Letters", "Review"]


class Draws:
    """Random draws that depend on `random.random` alone, which is the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def one(self, values: Sequence):
        """Return one of the values."""
        return values[int(self.random() * len(values))]

    def some(self, values: Sequence, count: int) -> list:
        """Return `count` values, some perhaps more than once."""
        return [self.one(values) for _ in range(count)]


def make_papers(draws: Draws) -> list[dict[str, object]]:
    """Return the papers: a few words of the topic among common ones, a venue, a year and the topic."""
    papers = []
    for number in range(NUM_PAPERS):
        topic = draws.one(list(TOPICS))
        words = draws.some(TOPICS[topic], 2) + draws.some(TOPICS[draws.one(list(TOPICS))], 1) + draws.some(COMMON, 7)
        abstract = " ".join(sorted(words, key=lambda _: draws.random()))
        year = "" if draws.random() < 0.04 else 1985 + int(draws.random() * 40)
        papers.append(
            {"id": f"P{number:03}", "abstract": abstract, "venue": draws.one(VENUES), "year": year, "topic": topic}
        )
    return papers


def make_citations(draws: Draws, papers: list[dict[str, object]]) -> list[tuple[object, object]]:
    """Return who cites whom: three papers each, mostly of the same topic."""
    of_topic = {topic: [p["id"] for p in papers if p["topic"] == topic] for topic in TOPICS}
    everyone = [p["id"] for p in papers]
    pairs = set()
    for paper in papers:
        for _ in range(3):
            cited = draws.one(of_topic[paper["topic"]] if draws.random() < 0.8 else everyone)
            if cited != paper["id"]:
                pairs.add((paper["id"], cited))
    return sorted(pairs)


def write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def main(folder: Path = Path(__file__).parent) -> None:
    """Write papers.csv, which lacks about every fifth topic, missing_topics.csv with those, and cites.csv."""
    draws = Draws(SEED)
    papers = make_papers(draws)
    citations = make_citations(draws, papers)
    hidden = {p["id"] for p in papers if p["id"] == "P017" or draws.random() < 0.2}
    columns = list(papers[0])
    shown = [{**p, "topic": ""} if p["id"] in hidden else p for p in papers]
    write(folder / "papers.csv", columns, [list(p.values()) for p in shown])
    write(folder / "cites.csv", ["source", "target"], citations)
    write(folder / "missing_topics.csv", ["id", "topic"], [(p["id"], p["topic"]) for p in papers if p["id"] in hidden])


if __name__ == "__main__":
    main()
