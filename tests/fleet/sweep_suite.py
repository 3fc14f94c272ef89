"""Sweeps that are spread over the machines of a fleet: each candidate is measured, whoever of the helpers dies, and the
winner is confirmed where the sweep was asked for."""
import sys
import time

from fleet_lab import Failure, Lab, tag_wins, wait_for

TAGS, KINDS = 12, 2  # candidates of a sweep; each is code of its own
WINNER = 9           # its TAG
LAUNCH_MS = 10       # what each of its launches is made to take, so that sweeps are under way for a while


def expect(condition, what):
    if not condition:
        raise Failure(what)


def slow(*rules):
    """A scenario in which WINNER is the fastest."""
    return tag_wins(WINNER) + list(rules) + [{"call": "cuLaunchKernel", "do": "delay_ms", "value": LAUNCH_MS}]


class Sweeps:
    def __init__(self, lab):
        self.lab, self.asker, self.helpers = lab, lab.daemons[0], lab.daemons[1:]
        self.shape = 63
        for daemon in lab.daemons:
            daemon.write_tiny(tags=TAGS, params=[("KIND", range(KINDS))],
                              body="if (n < -100 - KIND)\n        y[0] = KIND; // and so each KIND")

    def ask(self, **params):
        """An exhaustive sweep of a shape that nobody has tuned yet."""
        self.shape += 1
        return self.asker.sweep("tiny", shapes=[{"N": self.shape}], strategy="exhaustive", **params)

    def wait_connected(self):
        """The asker has heard of all others."""
        def connected():
            nodes = self.asker.fleet().get("nodes", [])
            young = [node for node in nodes if node["age_s"] < 10 and node.get("targets")]
            return len(young) == len(self.lab.daemons)
        wait_for(connected, what="all have heard of each other")

    def is_helping(self, daemon):
        return daemon.rpc("stats")["helping"]["running"] > 0

    def wait_helping(self, daemon):
        wait_for(lambda: self.is_helping(daemon), what=daemon.name + " helps")

    def rows(self, daemon, job, phase="search"):
        return [row for row in daemon.records(job=job) if row["run"] == "%s/%s" % (job, phase)]

    def check(self, job, outcomes=None):
        """It has ended well, and each candidate was measured and counted once. Its result and its rows."""
        told = self.asker.wait_job(job)
        expect(told["state"] == "done", "%s is %s: %s" % (job, told["state"], told.get("error")))
        result = told["results"][0]
        whole = TAGS * KINDS
        expect(result["evaluations"] == whole, "%d of %d are counted" % (result["evaluations"], whole))
        counts = {word: count for word, count in result["counts"].items() if count}
        expect(counts == (outcomes or {"ok": whole}), "counts are %s" % counts)
        rows = self.rows(self.asker, job)
        measured = {str(sorted(row["config"].items())) for row in rows if row["final"]}
        expect(len(measured) == whole, "%d of %d have a row" % (len(measured), whole))
        return result, rows

    # -- what is tested

    def spread(self):
        job = self.ask()
        result, rows = self.check(job)
        expect(result["fleet"]["remote_evaluations"] > 0, "others measured nothing: %s" % result["fleet"])
        measurers = {row["uuid"] for row in rows}
        expect(self.asker.uuid in measurers and len(measurers) > 1, "only %s measured" % measurers)
        confirmed = self.rows(self.asker, job, "confirm")
        where = {row["uuid"] for row in confirmed}
        expect(where == {self.asker.uuid}, "confirmed on %s" % where)
        best = result["best"]
        expect(best["confirmed"] and best["config"]["TAG"] == WINNER, "the winner is %s" % best)
        ask = {"kernel": "tiny", "shape": {"N": self.shape}, "policy": "cached"}
        for daemon in self.helpers:
            wait_for(lambda one=daemon: one.rpc("get", ask)["config"]["TAG"] == WINNER,
                     what="%s serves the winner" % daemon.name)

    def alone(self):
        result, rows = self.check(self.ask(local=True))
        expect("fleet" not in result, "a local sweep asked others")
        expect(len(rows) == TAGS * KINDS, "a local sweep has %d rows" % len(rows))

    def crash(self):
        """A candidate that takes down two workers of whoever has it is tried no more."""
        for daemon in self.lab.daemons:
            daemon.write_scenario(slow({"call": "cuLaunchKernel", "when": {"defines": {"TAG": 7}}, "do": "abort"}))
        self.restart_workers()
        _, rows = self.check(self.ask(), {"ok": (TAGS - 1) * KINDS, "crashed": KINDS})
        crashed = [row for row in rows if row["outcome"] == "crashed" and row["final"]]
        expect(all(row["attempts"] == 2 for row in crashed), "not two attempts each: %s" % crashed)
        for daemon in self.lab.daemons:
            daemon.write_scenario(slow())
        self.restart_workers()

    def restart_workers(self):
        """They read their scenario when they start."""
        for daemon in self.lab.daemons:
            daemon.stop()
        for daemon in self.lab.daemons:
            daemon.start()
        for daemon in self.lab.daemons:
            daemon.wait_ready()
        self.wait_connected()

    def helper_killed(self):
        job = self.ask()
        victim = self.helpers[0]
        self.wait_helping(victim)
        victim.kill9()
        self.check(job)
        victim.start().wait_ready()
        self.wait_connected()

    def helper_wants_its_device(self):
        job = self.ask()
        helper = self.helpers[0]
        self.wait_helping(helper)
        own = helper.sweep("tiny", shapes=[{"N": self.shape + 1000}], strategy="random", budget={"evals": 2}, local=True)
        told = helper.wait_job(own)
        expect(told["state"] == "done", "the helper's own sweep is " + told["state"])
        self.check(job)

    def asker_killed(self):
        job = self.ask()
        self.wait_helping(self.helpers[0])
        self.asker.kill9()
        self.asker.start().wait_ready()
        self.check(job)
        self.wait_connected()

    def engine_lost(self):
        job = self.ask()
        self.wait_helping(self.helpers[0])
        self.lab.engine.kill9()
        self.check(job)
        self.lab.engine.start()
        self.wait_connected()

    def engine_silent(self):
        job = self.ask()
        self.wait_helping(self.helpers[0])
        self.lab.engine.pause()
        self.check(job)
        self.lab.engine.resume()
        self.wait_connected()

    def canceled(self):
        job = self.ask()
        self.wait_helping(self.helpers[0])
        self.asker.rpc("cancel", {"job": job})
        expect(self.asker.wait_job(job)["state"] == "canceled", "it is not canceled")
        for daemon in self.helpers:
            wait_for(lambda one=daemon: not self.is_helping(one), what=daemon.name + " has ended its batch")
        self.check(self.ask())  # and the next one goes as ever

    PARTS = (spread, alone, helper_wants_its_device, asker_killed, canceled, crash)
    LOSSES = (helper_killed, engine_lost, engine_silent)  # each waits for leases or connections to run out


def main():
    parts = Sweeps.LOSSES if "losses" in sys.argv else Sweeps.PARTS
    with Lab(3, options=["--fleet-emulated"]) as lab:
        sweeps = Sweeps(lab)
        for daemon in lab.daemons:
            daemon.write_scenario(slow())
        lab.start()
        sweeps.wait_connected()
        for part in parts:
            begun = time.monotonic()
            part(sweeps)
            print("ok: %s, %.1f s" % (part.__name__, time.monotonic() - begun), flush=True)


if __name__ == "__main__":
    main()
