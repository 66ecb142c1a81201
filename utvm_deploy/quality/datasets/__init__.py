"""Samples of a model's inputs with labels or targets, read from the files that people have."""

from utvm_deploy.quality.datasets.facts import Dataset, ModelInput
from utvm_deploy.quality.datasets.load import dataset_of_arrays, load_dataset

__all__ = ["Dataset", "ModelInput", "dataset_of_arrays", "load_dataset"]
