"""Where the installed pyspark wheel is, found without importing it.

The wheel is the whole Spark distribution: start scripts, jars, and the Ivy that fetches more of them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from thence.core.errors import ConfigError


def spark_home() -> Path:
    """The directory of the wheel, which is a SPARK_HOME."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "engine.extra_missing",
            "pyspark is not installed",
            advice="Install the Spark extra: pip install 'thence[spark]'",
        )
    return Path(spec.origin).parent


def ivy_jar() -> Path:
    """Ivy, as the wheel carries it."""
    found = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise ConfigError(
            "engine.wheel_incomplete",
            f"{spark_home()} has no jars/ivy-*.jar",
            advice="Install pyspark again: pip install --force-reinstall 'thence[spark]'",
        )
    return found[-1]
