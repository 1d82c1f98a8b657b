"""How much each setting mattered in a search."""

from __future__ import annotations

from nfcgcn.search.tuning import Tuned, quiet_optuna

FEWEST_TRIALS = 20
"""Fewer trials cannot tell one setting's part from another's."""


def importances(tuned: Tuned) -> dict[str, float] | None:
    """Return each setting's share of the differences in validation accuracy, by fANOVA; None if trials do not show it.

    A trial that was stopped counts with the accuracy it had reached: without these trials, settings that made training
    fail or crawl would seem not to matter.
    """
    from optuna import create_study
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    shown = [t for t in tuned.trials if t.state != "failed"]
    if len(shown) < FEWEST_TRIALS or len({t.accuracy for t in shown}) < 2:
        return None
    with quiet_optuna():
        study = create_study(direction="maximize")
        study.add_trials(
            [create_trial(value=t.accuracy, params=t.params, distributions=dict(tuned.ranges)) for t in shown]
        )
        shares = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return {name: float(share) for name, share in shares.items()}
