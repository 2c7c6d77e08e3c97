"""The unmodified OpenLineage listener for Spark writes from a real job, through the proxy, to a backend that dies."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.door import Backend, Sidecar
from thence.journal.letters.store import SqliteDeadLetters
from thence.journal.view import JournalView
from thence.testing.ports import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from thence.engine.conf import EngineSettings
from thence.engine.jars import Jars
from thence.engine.java import find_java
from thence.engine.session import session

kept, place, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
java = find_java(kept / "engine")
jars = Jars(kept / "jars", java)
conf = {
    "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
    "spark.openlineage.transport.type": "http",
    "spark.openlineage.transport.url": url,
    "spark.openlineage.namespace": "compat",
}
settings = EngineSettings(directory=place / "engine", master="local[2]", jit="quick", conf=conf, app_name="compat")
with session(settings, (*jars.classpath("spark"), *jars.classpath("openlineage")), java) as spark:
    for name in ("one", "two", "three"):
        print(f"table {name}", flush=True)
        spark.range(100).write.format("delta").save(str(place / name))
    spark.read.format("delta").load(str(place / "one")).write.format("delta").save(str(place / "copy"))
"""


def test_every_event_of_a_spark_job_arrives_in_order(tmp_path: Path) -> None:
    port = free_port()
    with Backend(random.Random(1)) as backend, Sidecar(tmp_path, port, backend.port):
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(ROOT / ".dev"),
            str(tmp_path),
            f"http://127.0.0.1:{port}",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout is not None
            for line in job.stdout:
                if line.startswith("table"):
                    backend.restart()
        assert job.returncode == 0
        records = list(JournalView(tmp_path / "state" / "journal" / "lineage").records(1, None))
        sent = [json.loads(record.event.payload)["job"]["name"] for record in records]
        assert len(sent) >= 8
        deadline = time.monotonic() + 60
        while len(backend.arrived) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
        # What was sent twice, because an answer was lost, stands there twice in a row.
        remaining = iter(backend.arrived)
        assert all(name in remaining for name in sent), "events are missing or in another order"
    letters = SqliteDeadLetters.visit(tmp_path / "state" / "failed" / "failed.db")
    assert letters is None or not letters.find()
