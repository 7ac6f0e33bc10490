"""Many jobs on one host, none with a port of its own choice: each finds free ones, and no two meet."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Command, finished

# Takes ports at random, as other programs of a busy host do, and lets them go again.
_HOG = """
import random, socket, time
held = []
while True:
    grabbed = socket.socket()
    try:
        grabbed.bind(("", random.randint(32768, 60999)))
        grabbed.listen()
    except OSError:
        grabbed.close()
        continue
    held.append(grabbed)
    if len(held) > 300:
        held.pop(random.randrange(len(held))).close()
        time.sleep(0.001)
"""
# Rank 0 listens where the job said, and everybody who comes must be of the same job.
_MEET = """
import os, socket, sys, time
job, rank = os.environ["TORCHELASTIC_RUN_ID"], int(os.environ["RANK"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as server:
        server.settimeout(60)
        guest, _ = server.accept()
        with guest:
            guest.settimeout(60)
            name = guest.makefile().readline().strip()
            guest.sendall(job.encode() + b"\\n")
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            guest = socket.create_connection(place, timeout=60)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with guest:
        guest.sendall(job.encode() + b"\\n")
        name = guest.makefile().readline().strip()
os.write(1, f"{job} met {name}\\n".encode())
sys.exit(job != name)
"""


@pytest.mark.slow
def test_twenty_jobs_at_once_beside_a_program_that_grabs_ports(tmp_path: Path) -> None:
    backends = ("--standalone", "--rdzv-backend=c10d", "--rdzv-backend=static", "--standalone")
    with subprocess.Popen([sys.executable, "-c", _HOG]) as hog, Command(tmp_path) as command:
        script = command.script(_MEET)
        flags = ("--nproc-per-node=2", "--max-restarts=3", "--restart-backoff=0.1", script)
        agents = [command.start(backends[number % 4], *flags) for number in range(20)]
        try:
            ended = [finished(agent) for agent in agents]
        finally:
            hog.kill()
    assert [agent.returncode for agent in ended] == [0] * 20, [agent.stderr for agent in ended]
    met = [re.findall(r"(\w+) met (\w+)", agent.stdout) for agent in ended]
    assert all(len(pairs) >= 2 and pairs[-1][0] == pairs[-1][1] for pairs in met), met
    assert len({pairs[-1][0] for pairs in met}) == 20
