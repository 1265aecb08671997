"""scripts/p2p-bars on results that are made up.

Usage: p2p_bars_test.py SOURCE_FOLDER
"""
import copy
import json
import subprocess
import sys
import unittest
from pathlib import Path

script = Path(sys.argv.pop(1)) / "scripts" / "p2p-bars"
MB = 1 << 20


def row(size, microseconds, both_of_one):
    rate = size / microseconds / 1e3
    return {"bytes": size, "microseconds": microseconds, "microseconds_min": microseconds, "microseconds_max": microseconds,
            "gb_per_s": rate, "both_ways_gb_per_s": both_of_one * rate, "latency_microseconds": microseconds + 3, "vs_nccl": 1.0}


def method(transport, mover, factor, both_of_one):
    times = {4096: 6.7, MB: 9.5, 16 * MB: 50.0, 64 * MB: 180.0, 256 * MB: 680.0}
    return {"transport": transport, "mover": mover, "available": True,
            "results": [row(size, factor * us, both_of_one) for size, us in times.items()]}


def products(transport, mover, sender, receiver):
    return {"transport": transport, "mover": mover, "message_bytes": 16 * MB, "messages": 720, "equal_load": True,
            "from_slowdown": sender, "to_slowdown": receiver, "arrived": 1.0, "noise": {"from": 0.003, "to": 0.004}}


# As on two H200, where everything is as promised.
PROMISED = {"benchmark": "p2p", "mode": "threads", "pairs": [{
    "from": 0, "to": 1, "link": "NV18 (switch)", "nvlinks": 18, "peer_access": True,
    "plain_copy": {"bytes": 256 * MB, "microseconds": 7000.0, "gb_per_s": 38.0},
    "methods": [method("direct", "copy_engine", 1, 1.95), method("direct", "sm_write", 1.4, 1.8), method("nccl", "-", 1.1, 1.7)],
    "products": {"dim": 8192, "rounds": 5, "beside": [products("direct", "copy_engine", 0.05, 0.06),
                                                      products("direct", "sm_write", 0.2, 0.2),
                                                      products("nccl", "-", 0.1, 0.13)]}}]}


def run(text, *options):
    return subprocess.run([sys.executable, script, *options], input=text, capture_output=True, text=True, check=False)


class P2pBars(unittest.TestCase):
    def setUp(self):
        self.result = copy.deepcopy(PROMISED)
        self.pair = self.result["pairs"][0]
        self.beside = self.pair["products"]["beside"]

    def check(self):
        outcome = run(json.dumps(self.result), "--json")
        self.assertEqual(outcome.stderr, "")
        check = json.loads(outcome.stdout)
        self.assertEqual(outcome.returncode, 0 if check["passed"] else 1)
        self.assertEqual(check["passed"], not check["missed"])
        self.assertEqual(len(check["bars"]), sum(bar["met"] for bar in check["bars"]) + len(check["missed"]) + len(check["undecided"]))
        return check

    def expect(self, key, *texts):
        """As many lines as texts, in their order, each of which holds all words of its text."""
        lines = self.check()[key]
        self.assertEqual(len(lines), len(texts), lines)
        for line, text in zip(lines, texts):
            for part in text.split("|"):
                self.assertIn(part, line)

    def test_all_are_met_by_what_was_promised(self):
        self.expect("missed")
        self.assertEqual(len(self.check()["bars"]), 10)

    def test_the_library_must_be_beaten_by_eight_percent(self):
        self.pair["methods"][2] = method("nccl", "-", 1.07, 1.7)
        self.expect("missed", "0 -> 1|16 MB|1.08 x NCCL", "64 MB", "256 MB")

    def test_small_messages_must_be_quick(self):
        results = [m["results"] for m in self.pair["methods"]]
        results[0][0]["microseconds"] = 7.01
        self.expect("missed", "4 KB|7.01")
        results[0][1]["microseconds"] = 10.1
        self.expect("missed", "1 MB, us", "4 KB")
        results[2][0]["microseconds"] = 1.0  # the best mailbox counts, and the library is none
        self.expect("missed", "1 MB, us", "4 KB")
        results[1][0]["microseconds"] = 5.0
        self.expect("missed", "1 MB")

    def test_both_directions_must_run_at_once(self):
        self.pair["methods"][0] = method("direct", "copy_engine", 1, 1.89)
        self.expect("missed", "both ways at 16 MB", "both ways at 64 MB", "both ways at 256 MB")

    def test_products_may_be_slowed_half_as_much_as_by_the_library(self):
        self.beside[0] = products("direct", "copy_engine", 0.01, 0.07)  # of the end that suffers more
        self.expect("missed", "slowdown|0.07|0.065")

    def test_only_mailboxes_that_moved_as_much_as_the_library_compare(self):
        self.beside[0]["messages"] = 100
        self.expect("missed", "slowdown|0.2|0.065")  # sm_write is left, and slows more

    def test_only_mailboxes_that_came_in_time_compare(self):
        self.beside[0]["arrived"] = 0.89
        self.expect("missed", "slowdown|0.2|0.065")
        self.beside[1]["arrived"] = 0.5
        self.expect("missed", "slowdown|not measured")
        self.beside[2] = products("nccl", "-", 0.001, 0.001)  # then a slowdown of the library's in the noise is no excuse
        self.expect("missed", "slowdown|not measured")

    def test_there_is_no_verdict_within_the_noise(self):
        self.beside[2] = products("nccl", "-", 0.001, 0.008)  # half of it is the noise
        self.expect("missed")
        self.expect("undecided", "0 -> 1: slowdown|0.40 %, is within the noise|; --product-rounds 6 would tell")
        outcome = run(json.dumps(self.result))
        self.assertEqual(outcome.returncode, 0)
        self.assertIn("9 of 10 bars met\nno verdict: 0 -> 1: slowdown", outcome.stdout)
        self.beside[2] = products("nccl", "-", 0.001, 0.009)
        self.expect("undecided")
        self.expect("missed", "slowdown")
        self.beside[0] = products("direct", "copy_engine", -0.002, 0.004)
        self.expect("missed")

    def test_there_is_no_verdict_when_the_library_did_not_come_in_time(self):
        self.beside[2]["arrived"] = 0.25
        self.expect("missed")
        self.expect("undecided", "only 25 % of NCCL's messages")

    def test_the_cliff_must_be_seen_where_ranks_are_threads(self):
        self.pair["plain_copy"]["gb_per_s"] = 390.0  # somebody had enabled peer access before
        self.expect("missed", "plain copy")
        del self.pair["plain_copy"]
        self.expect("missed", "plain copy|not measured")
        self.result["mode"] = "processes"
        self.expect("missed")

    def test_what_was_not_measured_is_missed(self):
        del self.pair["products"], self.pair["methods"][2]
        self.expect("missed", *4 * ["not measured"])
        self.pair["nvlinks"] = 0
        self.expect("missed", "NVLink|not measured")

    def test_the_text_says_what_is_missed(self):
        self.pair["methods"][0]["results"][0]["microseconds"] = 7.01
        outcome = run(json.dumps(self.result))
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("9 of 10 bars met\nmissed: 0 -> 1: best mailbox for 4 KB, us: 7.01, must be at most 7\n", outcome.stdout)

    def test_anything_else_is_refused(self):
        for text in ("", "[]", "{}", '{"pairs": [{}]}', '"text"'):
            outcome = run(text)
            self.assertEqual(outcome.returncode, 2, text)
            self.assertIn("p2p-bars: stdin is not what", outcome.stderr)
            self.assertEqual(outcome.stdout, "")


unittest.main()
