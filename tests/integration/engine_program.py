"""Starts a session as a process of its own, so that tests can kill it: `python engine_program.py MODE`,
order on stdin.

It prints one JSON line when the session is up or when it could not start.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from thence.core.errors import ThenceError
from thence.engine.check import run_check
from thence.engine.conf import EngineSettings
from thence.engine.java import find_java
from thence.engine.session import is_running, session, start_session, stop_session


class Order(msgspec.Struct, frozen=True):
    settings: EngineSettings
    jars: tuple[Path, ...]

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)


def say(**values: object) -> None:
    print(msgspec.json.encode(values, enc_hook=str).decode(), flush=True)


def main(mode: str, order: Order) -> None:
    settings = order.settings
    java = find_java(settings.directory)
    if mode == "check":
        with session(settings, order.jars, java) as spark:
            report = run_check(spark, str(settings.directory / "check"))
        say(report=report, java=java)
        return
    if mode == "raise":
        with session(settings, order.jars, java) as spark:
            say(jvm=jvm_of(spark))
            raise RuntimeError("planned")
    spark = start_session(settings, order.jars, java)
    if mode == "lose":
        os.kill(jvm_of(spark), signal.SIGKILL)
        while is_running(spark):
            time.sleep(0.05)
        stop_session(spark)
        spark = start_session(settings, order.jars, java)
        say(count=spark.range(3).count(), paths=[path for path in sys.path if "spark-" in path])
        stop_session(spark)
        say(count=0, paths=[path for path in sys.path if "spark-" in path])
        return
    say(jvm=jvm_of(spark), secret=spark.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key"))
    time.sleep(600)


def jvm_of(spark: object) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[attr-defined]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "error")
    try:
        main(
            sys.argv[1], msgspec.json.decode(sys.stdin.buffer.read(), type=Order, dec_hook=lambda t, v: t(v))
        )
    except ThenceError as error:
        say(code=error.code, message=error.message, advice=error.advice)
        sys.exit(error.exit_code)
