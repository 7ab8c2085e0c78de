"""The errors of this package. Each says what was found, what was expected and what to do."""


class AdtrainError(Exception):
    """What all errors of this package are, but for the KeyError of a mapping: `Histories(path)[99]`."""


class ConfigurationError(AdtrainError):
    """A run's configuration that cannot be read, or that describes no network of this package."""


class CheckpointError(AdtrainError):
    """A folder that is no run, or a checkpoint that is incomplete, damaged or of another network."""


class HistoryError(AdtrainError):
    """Learning histories that are damaged, or that cannot be written as given."""


class MissingPackageError(AdtrainError, ImportError):
    """A Python package that only some functions need, and that is not installed."""
