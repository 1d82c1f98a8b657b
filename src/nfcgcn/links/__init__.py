"""Link prediction: which pairs of nodes that have no edge should have one.

Any model of the registry encodes the nodes, a decoder scores pairs of them. In reading order: `splits` hold edges out,
`negatives` draws pairs without an edge, `decoders` score pairs, `config` has the settings, `model` joins encoder and
decoder, `training` fits them, `scores` judges them, `heuristics` are the baselines that learn nothing, `evaluation`
repeats all of it over seeds, `prediction` scores new pairs and suggests links, `run_folder` stores a run, and
`estimator` is scikit-learn's view of it.
"""
