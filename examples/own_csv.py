"""From two CSV files to predictions, and the reasons for one of them.

The files are written here: papers with an abstract, a venue, a year and, for most of them, a topic; and citations
between them.
"""

import csv
import random
import tempfile
from pathlib import Path

import numpy as np

import nfcgcn

TOPICS = {
    "astronomy": ["star", "orbit", "telescope", "galaxy", "comet", "eclipse", "planet", "dust"],
    "botany": ["leaf", "root", "pollen", "seed", "forest", "moss", "petal", "soil"],
    "cooking": ["oven", "yeast", "butter", "flour", "simmer", "spice", "dough", "broth"],
}
COMMON = ["method", "result", "measure", "new", "large", "study", "over", "model", "sample", "data"]
VENUES = ["Annals", "Letters", "Review"]


def write_papers(folder: Path, count: int = 150) -> list[str]:
    """Write papers.csv, with every fifth topic left empty, and citations.csv; return all topics."""
    rng = random.Random(0)
    topics = [rng.choice(list(TOPICS)) for _ in range(count)]
    with (folder / "papers.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "abstract", "venue", "year", "topic"])
        for number, topic in enumerate(topics):
            words = rng.choices(TOPICS[topic], k=3) + rng.choices(COMMON, k=9)
            abstract = " ".join(rng.sample(words, len(words)))
            known = "" if number % 5 == 0 else topic
            rows.writerow([f"paper {number}", abstract, rng.choice(VENUES), rng.randint(1990, 2024), known])
    with (folder / "citations.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "target"])
        for number, topic in enumerate(topics):
            alike = [other for other in range(count) if topics[other] == topic and other != number]
            for cited in [*rng.sample(alike, 2), rng.randrange(count)]:
                rows.writerow([f"paper {number}", f"paper {cited}"])
    return topics


def main() -> None:
    """Read the files, learn from the known topics, predict the missing ones and explain the first prediction."""
    with tempfile.TemporaryDirectory() as folder:
        truth = write_papers(Path(folder))
        papers, citations = Path(folder, "papers.csv"), Path(folder, "citations.csv")
        graph = nfcgcn.load(papers, edges=citations, label="topic", text=["abstract"])
    print(graph)

    known, missing = np.flatnonzero(graph.labels >= 0), np.flatnonzero(graph.labels < 0)
    topics = np.array(graph.class_names)[graph.labels[known]]
    classifier = nfcgcn.NFCClassifier(graph, random_state=0).fit(known, topics)
    probabilities = classifier.predict_proba(missing)
    predicted = classifier.predict(missing)
    for node, topic, row in list(zip(missing, predicted, probabilities, strict=True))[:5]:
        print(f"{graph.node_names[node]}: {topic} ({row.max():.0%})")
    print(f"{np.sum(predicted == np.array(truth)[missing])} of {len(missing)} missing topics were found")

    explanation = nfcgcn.explain(classifier.model_, graph, int(missing[0]))
    print(f"why {graph.node_names[missing[0]]} is {classifier.classes_[explanation.target]}:")
    for reason in explanation.top(5):
        feature, paper = graph.feature_names[reason.feature], graph.node_names[reason.node]
        print(f"  {feature} of {paper}: {reason.contribution:+.3f}")


if __name__ == "__main__":
    main()
