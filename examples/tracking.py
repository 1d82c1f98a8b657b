"""Follow training in MLflow or Weights & Biases: a tracker is any object with the two methods below.

``python tracking.py`` prints; ``python tracking.py mlflow`` and ``python tracking.py wandb`` need these packages. For
TensorBoard there is ``nfcgcn train ... --track FOLDER`` and `nfcgcn.TensorBoardTracker`. Seeds may train at the same
time, so each has a run of its own there.
"""

import sys

import nfcgcn


class Printer:
    """Prints the best epoch of each seed."""

    def on_epoch(self, seed, epoch):
        pass

    def on_end(self, seed, run):
        print(f"seed {seed}: best epoch {run.best['epoch']}, validation accuracy {run.best['val_accuracy']:.1%}")


class MLflowTracker:
    """One MLflow run per seed, with the figures of every epoch and the settings."""

    def __init__(self, experiment, settings):
        import mlflow

        self.client, self.settings, self.ids = mlflow.MlflowClient(), settings, {}
        self.experiment = mlflow.set_experiment(experiment).experiment_id

    def on_epoch(self, seed, epoch):
        if seed not in self.ids:
            run = self.client.create_run(self.experiment, run_name=f"seed {seed}")
            self.ids[seed] = run.info.run_id
            for name, value in self.settings.items():
                self.client.log_param(self.ids[seed], name, value)
        for name, value in epoch.items():
            if name != "epoch":
                self.client.log_metric(self.ids[seed], name, value, step=epoch["epoch"])

    def on_end(self, seed, run):
        self.client.log_metric(self.ids[seed], "best_epoch", run.best["epoch"])
        self.client.set_terminated(self.ids[seed])


class WandbTracker:
    """One run of Weights & Biases per seed, all in one group; needs wandb 0.19.10 or later."""

    def __init__(self, project, settings):
        self.project, self.settings, self.runs = project, settings, {}

    def on_epoch(self, seed, epoch):
        import wandb

        if seed not in self.runs:
            self.runs[seed] = wandb.init(
                project=self.project,
                group="nfcgcn",
                name=f"seed {seed}",
                config=self.settings,
                reinit="create_new",
            )
        figures = {name: value for name, value in epoch.items() if name != "epoch"}
        self.runs[seed].log(figures, step=epoch["epoch"])

    def on_end(self, seed, run):
        self.runs[seed].summary["best_epoch"] = run.best["epoch"]
        self.runs[seed].finish()


def main(where: str = "") -> None:
    """Train two seeds and follow them."""
    graph = nfcgcn.load("digits")
    config = nfcgcn.make_config("nfc-gcn", dataset="digits", settings={"epochs": 20})
    trackers = {"mlflow": MLflowTracker, "wandb": WandbTracker}
    tracker = trackers[where]("digits", config.values) if where else Printer()
    nfcgcn.repeat(graph, config, [0, 1], track=tracker)


if __name__ == "__main__":
    main(*sys.argv[1:2])
