#!/usr/bin/env python3
"""Pushes a vector through the switch and prints the sum over all workers, with nothing but Python's standard library.

The whole of the protocol that one segment under "bsp" needs. The job file and how to load it: see examples/sum.rs, which
may be the other worker. With the switch's service address in the place of 10.0.0.254, on two hosts at the same time:

    python3 examples/sum.py 10.0.0.254:24190 10.0.0.1:7001 0 1.5 2 3
    python3 examples/sum.py 10.0.0.254:24190 10.0.0.2:7001 1 0.5 2 -3

Both print "2.0 4.0 0.0 ..".
"""

import os
import socket
import struct
import sys
import time

# version:4 type:4, flags, job, worker, round, segment, lanes/8, norm, rule version, frontier, incarnation, next round, time
HEADER = struct.Struct(">BBBBIIBBHIIII")
LATE, OLD = 2, 32
PUSH, RESULT, PULL, WAIT, JOIN, JOIN_ACK, LEAVE, NOTICE = range(8)
NOTICES = {1: "the switch does not know this worker: it was restarted", 2: "this worker is not a member of the job",
           3: "the switch does not know the job: load it first"}
JOB, SEGMENT, LANES, SCALE = 1, 0, 8, 1 << 24


class Worker:
    def __init__(self, switch, local, number):
        self.number = number
        # So that packets of an earlier process of this worker are not taken for ours.
        self.incarnation = int.from_bytes(os.urandom(4), "big")
        self.round = self.frontier = self.norm = self.rule = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(local)
        self.socket.connect(switch)

    def ask(self, kind, answer, lanes=()):
        """Sends a request, again and again, until its answer comes. Returns the answer's lanes."""
        deadline, pause, resent = time.monotonic() + 30, 0.01, 0
        segment = 1 if kind == JOIN else SEGMENT  # a JOIN says how many segments we expect
        while time.monotonic() < deadline:
            now_us = time.monotonic_ns() // 1000 & 0xFFFFFFFF
            header = HEADER.pack(1 << 4 | kind, resent, JOB, self.number, self.round, segment, len(lanes) // 8, self.norm,
                                 self.rule, self.frontier, self.incarnation, 0, now_us)
            self.socket.send(header + struct.pack(f">{len(lanes)}i", *lanes))
            self.socket.settimeout(pause)
            resent, pause = 1, min(2 * pause, 0.2)
            try:
                while True:
                    packet = self.socket.recv(2048)
                    fields = HEADER.unpack_from(packet)
                    version_kind, flags, job, number, round_, _, lanes8, norm, rule, frontier, included, next_round, _ = fields
                    if (job, number) != (JOB, self.number):
                        continue
                    if version_kind == 1 << 4 | NOTICE and kind != LEAVE:
                        sys.exit(f"worker {self.number}: {NOTICES.get(norm, norm)}")
                    if version_kind != 1 << 4 | answer:
                        continue  # WAIT, or a copy of an answer that we had
                    # Says it whether our contribution is in this round? Copies of the answer to a PULL do not.
                    told = included >> self.number & 1 or flags & (LATE | OLD)
                    if kind == PUSH and not (round_ == self.round and told):
                        continue
                    self.norm, self.rule, self.frontier = norm, rule, frontier
                    self.round = max(self.round, next_round)
                    return struct.unpack_from(f">{8 * lanes8}i", packet, HEADER.size)
            except TimeoutError:
                pass
        sys.exit(f"worker {self.number}: no answer for 30 s")


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: sum.py SWITCH:24190 LOCAL:PORT WORKER VALUE..")
    address = lambda text: (text.rsplit(":", 1)[0], int(text.rsplit(":", 1)[1]))
    worker = Worker(address(sys.argv[1]), address(sys.argv[2]), int(sys.argv[3]))
    vector = [float(value) for value in sys.argv[4:]]
    vector += [0.0] * (LANES - len(vector))

    worker.ask(JOIN, JOIN_ACK)
    before = worker.ask(PULL, RESULT)  # the sum of all rounds so far
    norm = worker.norm  # contributions are divided by it, so that the model moves by their mean
    after = worker.ask(PUSH, RESULT, [round(value * SCALE / norm) for value in vector])
    # Differences wrap at 32 bits, as the sum does.
    moved = [(b - a + (1 << 31)) % (1 << 32) - (1 << 31) for a, b in zip(before, after)]
    print(*[value * norm / SCALE for value in moved])
    worker.ask(LEAVE, NOTICE)


if __name__ == "__main__":
    main()
