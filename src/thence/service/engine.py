"""Spark as the settings want it: where its Java, its jars and its own directory are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from thence.service.settings import Settings

if TYPE_CHECKING:
    from thence.engine.check import EngineReport
    from thence.engine.jars import Jars
    from thence.engine.java import Java

Progress = Callable[[int, int], None]


class Engine:
    """The parts of the engine below one state directory; nothing starts before it is asked for."""

    def __init__(self, settings: Settings) -> None:
        self._spark = settings.spark
        self.directory = settings.state.absolute() / "engine"

    def java(self) -> Java:
        """The Java to use."""
        from thence.engine.java import find_java

        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return find_java(self.directory)

    def jars(self) -> Jars:
        """The jars of this state directory."""
        from thence.engine.jars import Jars

        return Jars(self.directory.parent / "jars", self.java())

    def check(self, progress: Progress | None = None) -> EngineReport:
        """Run the check job."""
        from thence.engine.check import run_check
        from thence.engine.conf import EngineSettings
        from thence.engine.session import session

        settings = EngineSettings(
            directory=self.directory,
            master=self._spark.master,
            conf=self._spark.conf,
            driver_memory=self._spark.driver_memory,
            jit="quick",
        )
        if self._spark.executor_python is not None:
            settings = msgspec.structs.replace(settings, executor_python=self._spark.executor_python)
        java = self.java()
        with session(settings, self.jars().classpath("spark", progress), java) as spark:
            return run_check(spark, str(self.directory))
