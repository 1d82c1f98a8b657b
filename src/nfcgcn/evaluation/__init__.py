"""Scores on held-out nodes, repeats over seeds, and statistics over these repeats."""

from nfcgcn.evaluation.origin import commit as commit
from nfcgcn.evaluation.origin import environment as environment
from nfcgcn.evaluation.origin import hardware as hardware
from nfcgcn.evaluation.origin import processor as processor
from nfcgcn.evaluation.repeats import Repeat as Repeat
from nfcgcn.evaluation.repeats import TestScores as TestScores
from nfcgcn.evaluation.repeats import UnfinishedError as UnfinishedError
from nfcgcn.evaluation.repeats import accuracy as accuracy
from nfcgcn.evaluation.repeats import describe as describe
from nfcgcn.evaluation.repeats import majority_class as majority_class
from nfcgcn.evaluation.repeats import perceptron as perceptron
from nfcgcn.evaluation.repeats import repeat as repeat
from nfcgcn.evaluation.repeats import summarise_scores as summarise_scores
from nfcgcn.evaluation.statistics import ClassScore as ClassScore
from nfcgcn.evaluation.statistics import Estimate as Estimate
from nfcgcn.evaluation.statistics import Summary as Summary
from nfcgcn.evaluation.statistics import class_scores as class_scores
from nfcgcn.evaluation.statistics import confusion as confusion
from nfcgcn.evaluation.statistics import estimate as estimate
from nfcgcn.evaluation.statistics import paired as paired
from nfcgcn.evaluation.statistics import summarise as summarise
