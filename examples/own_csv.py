"""From two CSV files to predictions, and the reasons for one of them.

The files lie in `data/`: papers with an abstract, a venue, a year and, for most of them, a topic; and citations between
them. They are made up, see `data/README.md`.
"""

import csv
from pathlib import Path

import numpy as np

import nfcgcn

DATA = Path(__file__).parent / "data"


def main() -> None:
    """Read the files, learn from the known topics, predict the missing ones and explain the first prediction."""
    graph = nfcgcn.load(DATA / "papers.csv", edges=DATA / "cites.csv", label="topic", text=["abstract"])
    print(graph)

    known, missing = np.flatnonzero(graph.labels >= 0), np.flatnonzero(graph.labels < 0)
    topics = np.array(graph.class_names)[graph.labels[known]]
    classifier = nfcgcn.NFCClassifier(graph, random_state=0).fit(known, topics)
    probabilities = classifier.predict_proba(missing)
    predicted = classifier.predict(missing)
    for node, topic, row in list(zip(missing, predicted, probabilities, strict=True))[:5]:
        print(f"{graph.node_names[node]}: {topic} ({row.max():.0%})")
    with (DATA / "missing_topics.csv").open(newline="", encoding="utf-8") as file:
        truth = {row["id"]: row["topic"] for row in csv.DictReader(file)}
    found = sum(truth[graph.node_names[node]] == topic for node, topic in zip(missing, predicted, strict=True))
    print(f"{found} of {len(missing)} missing topics were found")

    explanation = nfcgcn.explain(classifier.model_, graph, int(missing[0]))
    print(f"why {graph.node_names[missing[0]]} is {classifier.classes_[explanation.target]}:")
    for reason in explanation.top(5):
        feature, paper = graph.feature_names[reason.feature], graph.node_names[reason.node]
        print(f"  {feature} of {paper}: {reason.contribution:+.3f}")


if __name__ == "__main__":
    main()
