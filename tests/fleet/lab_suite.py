"""The laboratory itself: what the tests of the fleet rely on."""
import os
import subprocess
import sys

import fleet_lab
from fleet_lab import Failure, Lab, Refused


def can_connect(lab, i):
    """From the place of daemon i to the engine."""
    code = "import socket; socket.create_connection(('%s', %d), 1)" % (lab.engine.address, lab.engine.port)
    run = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL,
                         preexec_fn=fleet_lab.preparation(lab.net.namespace(i)))
    return run.returncode == 0


def expect(condition, what):
    if not condition:
        raise Failure(what)


def cable(lab):
    if not lab.is_real:
        print("not done here: cutting the network")
        return
    lab.net.cut(0)
    expect(not can_connect(lab, 0), "a cable that is out still carries")
    expect(can_connect(lab, 1), "the other one does not")
    lab.net.heal(0)
    expect(can_connect(lab, 0), "a cable that was put back does not carry")


def engine(lab):
    lab.engine.sql("CREATE TABLE kept(n int); INSERT INTO kept VALUES (7)")
    lab.engine.kill9()
    lab.engine.start()
    expect(lab.engine.sql("SELECT n FROM kept") == "7", "kill -9 lost a committed row")
    lab.engine.stop()
    lab.engine.copy_data()
    lab.engine.wipe()
    lab.engine.start()
    expect(lab.engine.sql("SELECT to_regclass('kept') IS NULL") == "t", "a wiped engine knows something")
    lab.engine.stop()
    lab.engine.restore()
    lab.engine.start()
    lab.engine.pause()
    try:
        lab.engine.sql("SELECT 1", limit_s=0.5)
        raise Failure("a paused engine answers")
    except subprocess.TimeoutExpired:
        lab.engine.resume()
    expect(lab.engine.sql("SELECT n FROM kept") == "7", "the restored copy lacks the row")


def daemons(lab):
    first, second = lab.daemons
    told = first.wait_job(first.sweep())
    expect(told["state"] == "done", "a sweep is " + told["state"])
    expect({row["host"] for row in first.records()} == {"host0"} or not lab.is_real, "the host's name is not its own")
    expect(first.rpc("devices")[0]["uuid"] != second.rpc("devices")[0]["uuid"], "two daemons have one GPU")
    count = len(first.records())
    first.kill9()
    first.start().wait_ready()
    expect(len(first.records()) == count, "kill -9 lost rows of a finished sweep")
    try:
        first.rpc("nonsense")
        raise Failure("nonsense is answered")
    except Refused:
        pass


def main():
    with Lab(2, has_fleet=False) as lab:
        for daemon in lab.daemons:
            daemon.write_tiny()
        lab.start()
        for part in (cable, engine, daemons):
            part(lab)
            print("ok: " + part.__name__, flush=True)
        folder, names = lab.folder, list(lab.net.names)
    expect(not os.path.exists(folder), "the folder is left")
    expect(not any(os.path.exists("/run/netns/" + name) for name in names), "a namespace is left")


if __name__ == "__main__":
    main()
